"""StreamGraph (what the user wrote) and JobGraph (what runs), and the way from one to the other."""
