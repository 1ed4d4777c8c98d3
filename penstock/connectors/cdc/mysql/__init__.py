"""MySQL's and MariaDB's side of change data capture: the binlog in row format."""
