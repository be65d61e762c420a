"""The testbed for Python programs and notebooks: what `import testbed` offers."""
