"""Pictures of a fabric, from the model alone."""
