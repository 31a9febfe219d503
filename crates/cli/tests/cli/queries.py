"""Runs the queries of docs/QUERIES.md over a run, in one engine: queries.py ENGINE PAGE RUN. Prints the quantiles as JSON.

Exit code 77: the engine is not installed.
"""

import json
import re
import sys

engine, page, run = sys.argv[1:]
blocks = re.findall(r"^```\w+ ([\w-]+)\n(.*?)^```", open(page).read(), re.S | re.M)
text = {name: body.replace("RUN", run) for name, body in blocks}


def statements(name):
    return [it for it in text[name].split(";") if it.strip()]


def duckdb():
    import duckdb

    connection = duckdb.connect()
    for statement in statements("duckdb"):
        connection.execute(statement)
    # That they run is what is asked of the others; a run without causes has no file to read.
    connection.execute(text["duckdb-repeats"]).fetchall()
    if json.load(open(f"{run}/run.json"))["plan"].get("causes"):
        connection.execute(text["duckdb-causes"]).fetchall()
    return connection.execute(text["quantiles"]).fetchall()


def spark():
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    exec(text["spark"], {"spark": spark})
    return [tuple(row) for row in spark.sql(text["quantiles"]).collect()]


try:
    rows = {"duckdb": duckdb, "spark": spark}[engine]()
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
print(json.dumps([[row[0], row[1], int(row[2]), float(row[3]), int(row[4])] for row in rows]))
