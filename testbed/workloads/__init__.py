"""What runs on the fabric: who sends what to whom."""
