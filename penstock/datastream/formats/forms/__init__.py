"""Lines that all have one form, as programs write them: numpy finds their values, where a parser would look at each sign."""
