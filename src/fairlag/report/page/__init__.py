"""The report page: sections as data, and the self-contained page that draws them."""
