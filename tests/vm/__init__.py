"""Tests that change the machine: only in a virtual machine that was made for them."""
