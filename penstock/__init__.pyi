from penstock.common import Types as Types
from penstock.common import WatermarkStrategy as WatermarkStrategy
from penstock.common.running_jobs import jobs as jobs
from penstock.datastream import StreamExecutionEnvironment as StreamExecutionEnvironment
from penstock.datastream.columns import col as col
from penstock.testing import MiniCluster as MiniCluster

__version__: str
