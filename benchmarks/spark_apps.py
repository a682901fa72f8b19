"""Spark applications that the benchmark of Spark Workers runs."""

from __future__ import annotations

from collections.abc import Mapping

_SETTINGS = {
    "spark.authenticate": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.port": "0",
    "spark.executor.cores": "1",
    "spark.executor.memory": "900m",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.rddBlocks.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
}

CLIENT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({remote!r}).getOrCreate()
assert spark.range(3).count() == 3
"""
CLASSIC = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "{flags}").getOrCreate()
assert spark.range(3).count() == 3
import os
os._exit(0)
"""

_STATS = """
import json, time
from urllib.request import urlopen
api = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
def ask(path): return json.load(urlopen(f"{api}/{path}"))
def told(**more):
    executors = ask("allexecutors")
    print("TOLD", json.dumps({
        "failed_tasks": sum(e["failedTasks"] for e in executors),
        "executors": len(executors) - 1,
        "stages_again": sum(s["attemptId"] > 0 for s in ask("stages")),
        **more,
    }))
def nap(seconds): return f"reflect('java.lang.Thread', 'sleep', {int(seconds * 1000)}L) AS slept"
"""
SHUFFLE = (
    _STATS
    + """
spark.conf.set("spark.sql.shuffle.partitions", "24")
maps = spark.range(0, 90, 1, 90).selectExpr("id", "id % 24 AS k", nap(0.3))
sums = maps.groupBy("k").sum("id").withColumnRenamed("sum(id)", "total")
total = sums.selectExpr("total", nap(0.5)).groupBy().sum("total").collect()[0][0]
told(right=total == 89 * 90 // 2)
"""
)
_LOAD = (
    _STATS
    + """
from datetime import datetime
def at(text): return datetime.fromisoformat(text.replace("GMT", "+00:00")).timestamp()
print("BEGIN", flush=True)
began = time.time()
for tasks, seconds, pause in STEPS:
    spark.range(0, tasks, 1, tasks).selectExpr("id", nap(seconds)).agg({"id": "sum"}).collect()
    time.sleep(pause)
seconds = time.time() - began
waits = sorted(
    at(task["launchTime"]) - at(stage["submissionTime"])
    for stage in ask("stages?status=complete")
    for task in ask(f"stages/{stage['stageId']}/{stage['attemptId']}/taskList?length=1000")
)
told(
    seconds=round(seconds, 1),
    task_wait_mean=round(sum(waits) / len(waits), 2),
    task_wait_p95=round(waits[int(0.95 * len(waits))], 2),
    task_wait_max=round(waits[-1], 2),
    tasks=len(waits),
)
"""
)
BURSTS = f"STEPS = ((24, 1.0, 12), (4, 1.0, 12), (24, 1.0, 0))\n{_LOAD}"
"""(tasks, seconds of each, seconds of rest after them)."""
STEADY = f"STEPS = ((160, 0.5, 0),)\n{_LOAD}"

STREAM = (
    _STATS
    + """
import pathlib, sys, threading
from datetime import datetime
if REPORTS:
    from penstock.spark.stream_reporter import report_progress
    report_progress(spark)
folder = pathlib.Path(FOLDER)
arrived, ended, rate, written = folder / "arrived", threading.Event(), [STEPS[0][1]], 0
arrived.mkdir()

def feed():
    global written
    due, at = 0.0, time.monotonic()
    while not ended.wait(0.1):
        now = time.monotonic()
        due, at = due + (now - at) * rate[0], now
        while written < due:
            written += 1
            hidden = folder / "hidden"
            hidden.write_text("x")
            hidden.rename(arrived / str(written))

spark.conf.set("spark.sql.files.maxPartitionBytes", "1")  # a task for each file
spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
rows = spark.readStream.format("text").load(str(arrived)).selectExpr("value", nap(ROW_SECONDS))
writer = rows.writeStream.format("noop").queryName("load")
query = writer.trigger(processingTime=f"{TRIGGER_SECONDS} seconds").start()
feeding = threading.Thread(target=feed)
feeding.start()
while len([one for one in query.recentProgress if one.numInputRows]) < 3:
    time.sleep(0.2)
time.sleep(SETTLE_SECONDS)
print("BEGIN", flush=True)
began = time.time()
for seconds, files_per_second in STEPS:
    rate[0] = files_per_second
    time.sleep(seconds)
print("END", flush=True)
over = time.time()
ended.set()
feeding.join()
query.processAllAvailable()
batches = [
    (datetime.fromisoformat(one.timestamp).timestamp(), one.durationMs["triggerExecution"] / 1000)
    for one in query.recentProgress if one.numInputRows
]
seconds = sorted(seconds for at, seconds in batches if began <= at <= over)
every_row = sum(one.numInputRows for one in query.recentProgress) == written
query.stop()
told(
    batches=len(seconds),
    batch_p50=round(seconds[len(seconds) // 2], 1),
    batch_p95=round(seconds[int(0.95 * len(seconds))], 1),
    batch_max=round(seconds[-1], 1),
    late=sum(one > PROMISE_SECONDS for one in seconds),
    rows=written,
    every_row_once=every_row,
)
"""
)
"""A query whose rows come by ``STEPS``: (seconds, files a second)."""


def session_code(master: str, conf: Mapping[str, str]) -> str:
    """Python that opens the session ``spark`` on a cluster."""
    return (
        "from pyspark.sql import SparkSession\n"
        f"builder = SparkSession.builder.master({master!r})\n"
        f"for name, value in { ({**_SETTINGS, **conf})!r}.items():\n"
        "    builder = builder.config(name, value)\n"
        "spark = builder.getOrCreate()\n"
    )
