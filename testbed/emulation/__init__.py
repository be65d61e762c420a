"""Emulated runs: fabric, endpoints, controller, experiment."""
