"""What several kinds of test share. Nothing here is imported by the product."""
