"""A session: a driver without a program, to which clients submit jobs. Carries out what its Dispatcher decides."""
