"""High availability: where jobs are kept, which driver leads one, and how another driver takes it over."""
