"""Random programs on true PyFlink and on Penstock. What differs has to stand on the compatibility page.

`python -m differential` runs it; `make differential` makes PyFlink's environment too.
"""
