"""What an operator does with EVs and ports."""
