"""Runs questions in an engine, each a list of statements: a JSON document on standard input, a list of the columns and rows of each
question's last statement on standard output.

Exit code 69: the engine, or something that it needs, is not installed.
"""

import json
import os
import shutil
import sys


def duckdb(statements):
    import duckdb

    connection = duckdb.connect()
    for statement in statements:
        found = connection.execute(statement)
    return [column[0] for column in found.description], found.fetchall()


def spark(statements):
    from pyspark.sql import SparkSession

    if not os.environ.get("JAVA_HOME") and not shutil.which("java"):
        raise ImportError("Spark needs Java: `java` was not found, and JAVA_HOME is not set")
    builder = SparkSession.builder.appName("whylate").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for statement in statements:
        found = session.sql(statement)
    return found.columns, [list(row) for row in found.collect()]


def plain(value):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    number = float(value)
    return int(number) if number == int(number) and abs(number) < 2**53 else number


# Engines print on standard output themselves (DuckDB its progress, after two seconds): that is not part of the answer.
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
asked = json.load(sys.stdin)
try:
    engines = {"duckdb": duckdb, "spark": spark}
    answers = [engines[asked["engine"]](statements) for statements in asked["questions"]]
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(69)
json.dump([{"columns": columns, "rows": [[plain(it) for it in row] for row in rows]} for columns, rows in answers], answer)
answer.flush()
