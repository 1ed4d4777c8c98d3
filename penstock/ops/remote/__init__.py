"""A client's half of sessions: asks REST servers, submits jobs of this program to a session, and watches over them."""
