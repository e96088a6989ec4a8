"""What a person sees of results: recorded files, tables, pages."""
