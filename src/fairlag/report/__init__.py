"""Shows results: tables, figures, the report page and the generated reference pages."""
