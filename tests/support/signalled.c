/* A signal at a moment when a shell can not act on it at once.
 *
 *   gcc -O2 -shared -fPIC -o signalled.so signalled.c
 *   AT_FORK=N LD_PRELOAD=signalled.so sh SCRIPT...
 *   AT_READ=FILE LD_PRELOAD=signalled.so bash SCRIPT...
 *   LATE=FILE LD_PRELOAD=signalled.so bash SCRIPT...
 *
 * AT_FORK: at its Nth fork the shell gets TERM, and the child goes on only a tenth of a second later: between the
 * start of a program and the shell's next line. AT_READ: as soon as FILE exists, the shell or a copy of it removes it
 * just before it waits for a pipe, when it has looked for signals already, and the shell gets TERM. LATE: as soon as
 * FILE exists, the shell or a copy of it removes it, and has no core for 1.2 seconds after it has read the end of a
 * line from a pipe. Programs that the shell starts are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <unistd.h>

static int left;
static pid_t script;
static const char *file, *late;

__attribute__((constructor)) static void start(void)
{
    const char *number = getenv("AT_FORK"), *name = getenv("AT_READ");
    left = number ? atoi(number) : 0;
    file = name;
    script = getpid();
    late = getenv("LATE");
    unsetenv("LD_PRELOAD");
}

pid_t fork(void)
{
    pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    int now = left > 0 && --left == 0;
    pid_t pid = real();
    if (pid == 0)
        left = 0;
    if (now && pid == 0)
        usleep(100000);
    if (now && pid > 0)
        kill(getpid(), SIGTERM);
    return pid;
}

static int is_pipe(int descriptor)
{
    struct stat kind;
    return !fstat(descriptor, &kind) && S_ISFIFO(kind.st_mode);
}

static void before_waiting_for(int pipe)
{
    struct pollfd one = {.fd = pipe, .events = POLLIN};
    if (file && is_pipe(pipe) && poll(&one, 1, 0) == 0 && !unlink(file))
        kill(script, SIGTERM);
}

ssize_t read(int from, void *buffer, size_t length)
{
    ssize_t (*real)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    before_waiting_for(from);
    ssize_t got = real(from, buffer, length);
    if (late && got == 1 && *(char *)buffer == '\n' && is_pipe(from) && !unlink(late))
        usleep(1200000);
    return got;
}

/* bash 5.2 waits here if it reads for a limited time. */
int pselect(int many, fd_set *in, fd_set *out, fd_set *other, const struct timespec *time, const sigset_t *mask)
{
    int (*real)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *) =
        (int (*)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))dlsym(RTLD_NEXT, "pselect");
    if (in && many > 0 && FD_ISSET(many - 1, in))
        before_waiting_for(many - 1);
    return real(many, in, out, other, time, mask);
}
