"""Workers that the jobs of one Spark session share: processes of executors, kept warm between jobs. Knows Spark by a port only."""
