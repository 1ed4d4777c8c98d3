"""`penstock doctor`: what a Spark application allows, what is wrong with it, and which setting helps."""
