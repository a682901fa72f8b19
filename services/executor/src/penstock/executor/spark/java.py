"""How Spark's Java classes are started here: directly, small, with a class archive if there is one.

Spark's launch scripts would start a Java of their own first. What a process needs to know goes
through an argument file and the environment, never the command line: settings and tokens may be
secrets, and everybody on the machine can read a command line.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from penstock.spark.class_archive import Archive, archive, jars_in, pyspark_home
from penstock.spark.java import Java, JavaMissing, find_java

QUICK = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+IgnoreUnrecognizedVMOptions",
)
SMALL = (
    *("-Xms24m", "-Xmx64m"),  # a heap that begins small leaves 8 MB less behind than one of 64
    *("-Xss512k", "-XX:ReservedCodeCacheSize=32m", "-XX:MaxDirectMemorySize=64m"),
)
"""For daemons, which carry no data."""
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
_MODULES = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)
"""What Spark's own launcher passes (`JavaModuleOptions` of 4.3)."""
_MODULES_FROM_24 = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


class SparkMissing(RuntimeError):
    """No Java or no pyspark on this host: what was looked at, and what to do."""


@dataclass(frozen=True)
class SparkJava:
    """The Java of this host and the Spark in the installed pyspark (found, not imported)."""

    java: Java
    home: Path

    @cached_property
    def jars(self) -> tuple[Path, ...]:
        return jars_in(self.home)

    @cached_property
    def scala(self) -> str:
        """The Scala that it was built with, as in ``spark-core_2.13-4.3.0.jar``."""
        names = (jar.name.partition("spark-core_")[2] for jar in self.jars)
        return next((name.partition("-")[0] for name in names if name), "")

    def archive(self, kind: str) -> Archive:
        """Of classes: ``daemon`` (Master, Worker), ``executor`` or ``connect``."""
        return archive(self.java, kind, self.jars)

    def arguments(
        self, folder: Path, flags: Sequence[str], settings: Mapping[str, str], *main: str
    ) -> list[str]:
        """Everything behind ``java``.

        Args:
            folder: that of `prepare`.
            flags: of the Java process.
            settings: of Spark.
            main: the class and its arguments.
        """
        return [
            *QUICK,
            *self.java.flags,
            *_MODULES,
            *(_MODULES_FROM_24 if self.java.version >= 24 else ()),
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            *flags,
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-cp", os.pathsep.join(map(str, self.jars))),
            *main,
        ]

    def command(self, folder: Path) -> list[str]:
        """Starts Java with what `prepare` wrote."""
        return [str(self.java.binary), f"@{folder / 'java.args'}"]

    def environment(self, folder: Path, interface: str) -> dict[str, str]:
        """Variables: where everything is, and the address to listen at."""
        return {
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": interface,
            "JAVA_HOME": str(self.java.home),
        }


def find_spark() -> SparkJava:
    """What Spark runs on here.

    Raises:
        SparkMissing: no Java that is new enough, or no pyspark.
    """
    home = pyspark_home()
    if home is None:
        raise SparkMissing("pyspark is not installed on this host; install penstock[spark]")
    try:
        return SparkJava(find_java(), home)
    except JavaMissing as error:
        raise SparkMissing(str(error)) from error


def prepare(folder: Path, arguments: Sequence[str]) -> None:
    """Makes the folder of a process, with its argument file; what a former one left there goes."""
    clear(folder)
    for name in ("tmp", "local"):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOGGING, "utf-8")
    file = os.open(folder / "java.args", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.writelines(_quoted(argument) for argument in arguments)


def forget_arguments(folder: Path) -> None:
    """They have been read."""
    (folder / "java.args").unlink(missing_ok=True)


def clear(folder: Path) -> None:
    """Removes what a process left, its log excepted."""
    for name in ("tmp", "local", "warehouse"):
        shutil.rmtree(folder / name, ignore_errors=True)
    forget_arguments(folder)


def _quoted(argument: str) -> str:
    """One line of a Java argument file."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        argument = argument.replace(plain, escaped)
    return f'"{argument}"\n'
