"""StreamGraph (what the user wrote), JobGraph (what runs), and what both are made of. `penstock.engine.compiler` makes one of the other."""
