"""Wall clocks of processes that can be set while they run, without a word in the product.

A small library, compiled here and loaded before libc, adds the seconds that stand in a file to what
`clock_gettime`, `gettimeofday` and `time` answer. Monotonic clocks are left alone, as a machine
whose clock is set leaves them.
"""

from __future__ import annotations

import struct
from pathlib import Path

import psutil
from tests.chaos.allowed import demand

HOUR = 3600
_VARIABLE = "CHAOS_CLOCK"
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) ahead = page;
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *answer) {
    if (!real) begin();
    int code = real(which, answer);
    if (!code && ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        answer->tv_sec += *ahead;
    return code;
}

int gettimeofday(struct timeval *restrict answer, void *restrict zone) {
    struct timespec now;
    (void) zone;
    clock_gettime(CLOCK_REALTIME, &now);
    answer->tv_sec = now.tv_sec;
    answer->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *answer) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (answer) *answer = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The wall clock of the processes that are started with `environment`."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.ahead_seconds = 0
        file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), _VARIABLE: str(file)}

    def set(self, ahead_seconds: int) -> None:
        """Sets it for those that run as well."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", ahead_seconds))
        self.ahead_seconds = ahead_seconds

    def rules(self, pid: int) -> bool:
        """Whether a process goes by it."""
        try:
            return psutil.Process(pid).environ().get(_VARIABLE) == str(self._file)
        except psutil.Error:  # it has just ended
            return True


class Clocks:
    """Makes clocks; the library is compiled once.

    Args:
        folder: for library and files.

    Raises:
        NotAllowed: there is no C compiler.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        source = folder / "clock.c"
        source.write_text(_SOURCE, "utf-8")
        self._library = folder / "clock.so"
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        demand(*command, needs="a C compiler")

    def make(self, name: str) -> Clock:
        return Clock(self._library, self._folder / f"{name}.clock")
