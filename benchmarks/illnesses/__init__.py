"""The same illnesses on the dashboards of Penstock, Flink and Dask: pictures to compare what each lets one see."""
