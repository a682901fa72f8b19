"""What the code of a workflow must not call, by name, and what its context has instead."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One kind of finding.

    Attributes:
        name: in findings, and in comments that ignore it.
        why: what is wrong with a call that it is about.
        instead: what to write in its place.
        calls: dotted names of functions, classes and modules; a call of any of them, or of what is
            in them, is a finding.
        reads: dotted names whose mere use is one.
        is_warning: it may be meant; the check does not fail because of it.
    """

    name: str
    why: str
    instead: str
    calls: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    is_warning: bool = False


SLEEP = Rule(
    "sleep",
    "holds its worker, and is slept again each time that the code runs",
    "await ctx.sleep(...)",
    ("time.sleep", "asyncio.sleep", "trio.sleep", "anyio.sleep", "gevent.sleep"),
)
CLOCK = Rule(
    "clock",
    "is another time each time that the code runs",
    "ctx.now()",
    (
        *(f"time.{name}" for name in ("time", "time_ns", "monotonic", "monotonic_ns")),
        *(f"time.{name}" for name in ("perf_counter", "perf_counter_ns", "process_time")),
        *(f"time.{name}" for name in ("thread_time", "clock_gettime", "localtime", "gmtime")),
        *(f"time.{name}" for name in ("ctime", "asctime", "strftime")),
        *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
        "datetime.date.today",
        *(f"pendulum.{name}" for name in ("now", "today", "tomorrow", "yesterday")),
        *(f"arrow.{name}" for name in ("now", "utcnow")),
        "django.utils.timezone.now",
    ),
)
CHANCE = Rule(
    "random",
    "gives something else each time that the code runs",
    "ctx.random() or ctx.uuid()",
    (
        "random",
        "secrets",
        *(f"uuid.uuid{version}" for version in (1, 4, 6, 7)),
        "os.urandom",
        "os.getrandom",
        "numpy.random",
        "hash",
        "id",
    ),
)
ENVIRONMENT = Rule(
    "environment",
    "differs from host to host, and from one deployment to the next",
    "an argument of the workflow, or ctx.step(...), which is recorded",
    (
        *(f"os.{name}" for name in ("getenv", "getcwd", "getpid", "cpu_count", "uname")),
        *(f"os.{name}" for name in ("getlogin", "getuid", "getloadavg")),
        "socket.gethostname",
        "socket.getfqdn",
        "platform",
        "getpass",
        "locale",
    ),
    ("os.environ", "os.environb", "sys.argv"),
)
NETWORK = Rule(
    "network",
    "is asked each time that the code runs, and may answer otherwise or not at all",
    "a job, ctx.run(...), or a short ctx.step(...)",
    (
        *("requests", "httpx", "aiohttp", "urllib.request", "urllib3", "http.client"),
        *("socket", "smtplib", "ftplib", "imaplib", "poplib", "xmlrpc.client", "websockets"),
        *("boto3", "botocore", "redis", "psycopg", "psycopg2", "asyncpg", "pymysql", "sqlite3"),
        *("sqlalchemy.create_engine", "pymongo", "nats", "grpc", "kafka", "elasticsearch"),
    ),
)
FILES = Rule(
    "files",
    "is another file on another host, or at another time",
    "a job, ctx.run(...), or a short ctx.step(...)",
    (
        *("open", "io.open", "shutil", "tempfile", "glob"),
        *(f"os.{name}" for name in ("open", "listdir", "scandir", "walk", "stat", "lstat")),
        *(f"os.{name}" for name in ("remove", "unlink", "rename", "replace", "mkdir")),
        *(f"os.{name}" for name in ("makedirs", "rmdir", "access", "chmod", "utime")),
        *(f"os.path.{name}" for name in ("exists", "isfile", "isdir", "getmtime", "getsize")),
        *(f"pathlib.Path.{name}" for name in ("cwd", "home")),
    ),
)
PROCESS = Rule(
    "process",
    "starts another process each time that the code runs",
    "a job: ctx.run(...)",
    (
        *("subprocess", "multiprocessing"),
        *(f"os.{name}" for name in ("system", "popen", "fork", "kill", "posix_spawn")),
        *(f"os.exec{kind}" for kind in ("v", "ve", "vp", "l", "le", "lp")),
        *(f"asyncio.create_subprocess_{kind}" for kind in ("exec", "shell")),
    ),
)
THREAD = Rule(
    "thread",
    "runs beside the workflow, where nothing of it is recorded",
    "ctx.gather(...), ctx.race(...) or ctx.map(...)",
    (
        *("threading", "concurrent.futures", "_thread"),
        *(f"asyncio.{name}" for name in ("create_task", "ensure_future", "gather", "wait")),
        *(f"asyncio.{name}" for name in ("wait_for", "timeout", "TaskGroup", "run", "to_thread")),
        *(f"asyncio.{name}" for name in ("get_event_loop", "get_running_loop", "Queue", "Lock")),
        *(f"asyncio.{name}" for name in ("Event", "Semaphore", "as_completed", "shield")),
    ),
)
BY_NAME = (SLEEP, CLOCK, CHANCE, ENVIRONMENT, PROCESS, THREAD, FILES, NETWORK)

GLOBAL = Rule(
    "global",
    "is state of one process, which other workers do not have",
    "arguments, results of steps, and local variables",
)
CLOSURE = Rule(
    "closure",
    "is defined inside of a function, so that no worker can import it",
    "a function of the module, with arguments",
)
CAPTURED = Rule(
    "captured",
    "and runs once: when the workflow runs again from its top, nothing is changed",
    "what the function returns: value = await ctx.step(...)",
)
ENDLESS = Rule(
    "endless",
    "waits without end where the signal is never sent",
    "timeout=, with a default= or an 'except TimeoutError'",
    is_warning=True,
)
UNDO = Rule(
    "undo",
    "undoes nothing where the workflow is cancelled, or its time is over",
    "except (StepFailed, Cancelled), with ctx.compensate()",
    is_warning=True,
)
AWAIT = Rule(
    "await",
    "is not an awaitable of the context, and ends the workflow with an error",
    "ctx.run(...) for work, ctx.step(...) for a short function, or a coroutine that is given ctx",
)
UNAWAITED = Rule(
    "unawaited",
    "begins nothing, since it is not awaited",
    "await it, or give it to ctx.gather(...)",
)
OPTION = Rule(
    "option",
    "is no option of a step, and ends the workflow with an error",
    "backoff=Backoff(first_seconds=0.2), whole tries=, seconds or a timedelta for timeout= and "
    "delay=, a list for tags=",
)
ORDER = Rule(
    "order",
    "has another order in another process",
    "sorted(...)",
)
IGNORE = Rule("ignore", "names no rule", "one of the rules of 'penstock workflow check --help'")

RULES = (
    *BY_NAME,
    GLOBAL,
    CLOSURE,
    CAPTURED,
    ENDLESS,
    UNDO,
    AWAIT,
    UNAWAITED,
    OPTION,
    ORDER,
    IGNORE,
)

FILE_METHODS = frozenset({"read_text", "write_text", "read_bytes", "write_bytes", "iterdir"})
"""Methods that only paths have."""
MUTATING = frozenset(
    {
        *("append", "extend", "insert", "add", "update", "pop", "popitem", "remove", "discard"),
        *("clear", "setdefault", "sort", "reverse", "appendleft", "popleft"),
    }
)
COMMANDS = frozenset(
    {
        *("run", "step", "gather", "race", "map", "sleep", "wait_signal", "compensate"),
        "continue_as_new",
    }
)
"""Methods of the context that are to be awaited."""


def rule_of(name: str) -> Rule | None:
    """The rule that a call of a dotted name breaks."""
    for rule in BY_NAME:
        if any(name == one or name.startswith(f"{one}.") for one in rule.calls):
            return rule
    return None


def rule_of_read(name: str) -> Rule | None:
    """The rule that the mere use of a dotted name breaks."""
    return next((rule for rule in BY_NAME if name in rule.reads), None)
