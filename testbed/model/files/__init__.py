"""Files as model objects: YAML, scenarios, topologies, matrices; errors name file and line."""
