/* A program that never returns from its handler of TERM, as fio 3.33 if TERM comes during fork(2). Its child has a
   session of its own and waits for ever, as fio's jobs do. */

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void hang(int number)
{
    (void)number;
    for (;;)
        pause();
}

int main(void)
{
    if (fork() == 0)
        return setsid() < 0 || pause();
    signal(SIGTERM, hang);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
