/* Calls that change files below one folder fail, are cut short, or are the last ones: loaded before the C library.
   They are counted from 1 once faults_begin() was called, so that a process which was forked can be armed. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* A positive kind is the errno of a call that does nothing. */
enum { NONE = 0, KILL_BEFORE = -1, KILL_AFTER = -2, SHORT = -3, MOST = 4096 };

static char folder[4096];
static int kinds[MOST], watched[MOST];
static volatile int calls;

void faults_begin(const char *path) { strncpy(folder, path, sizeof folder - 1); }
void faults_watch(int fd) { watched[fd] = 1; }
void faults_plan(int call, int kind) { kinds[call] = kind; }
int faults_count(void) { return calls; }

static int below(const char *path)
{
    char here[4096];
    if (folder[0] == 0)
        return 0;
    if (path[0] == '/')
        return strncmp(path, folder, strlen(folder)) == 0;
    return getcwd(here, sizeof here) && strcmp(here, folder) == 0;
}

static int of_interest(int fd) { return folder[0] && fd >= 0 && fd < MOST && watched[fd]; }

static int next_kind(void)
{
    int call = __sync_add_and_fetch(&calls, 1);
    int kind = call < MOST ? kinds[call] : NONE;
    if (kind == KILL_BEFORE)
        raise(SIGKILL);
    return kind;
}

/* Do `call` unless its turn is to fail. */
#define TURN(type, call)                          \
    do {                                          \
        int kind = next_kind();                   \
        if (kind > 0) { errno = kind; return -1; } \
        type result = call;                       \
        if (kind == KILL_AFTER) raise(SIGKILL);   \
        return result;                            \
    } while (0)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define BY_PATH(name, declared, given, path) \
    int name declared { if (!below(path)) return NEXT(name) given; TURN(int, NEXT(name) given); }
#define BY_FD(name, declared, given) \
    int name declared { if (!of_interest(fd)) return NEXT(name) given; TURN(int, NEXT(name) given); }

static int opened(int fd) { if (fd >= 0 && fd < MOST) watched[fd] = 1; return fd; }

#define OPEN(name, declared, path, ...)                                          \
    int name declared                                                            \
    {                                                                            \
        va_list rest;                                                            \
        va_start(rest, flags);                                                   \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                \
        va_end(rest);                                                            \
        if ((flags & O_ACCMODE) == O_RDONLY || !below(path))                     \
            return NEXT(name)(__VA_ARGS__, mode);                                \
        TURN(int, opened(NEXT(name)(__VA_ARGS__, mode)));                        \
    }

OPEN(open, (const char *path, int flags, ...), path, path, flags)
OPEN(open64, (const char *path, int flags, ...), path, path, flags)
OPEN(openat, (int at, const char *path, int flags, ...), path, at, path, flags)
OPEN(openat64, (int at, const char *path, int flags, ...), path, at, path, flags)
BY_PATH(rename, (const char *old, const char *new), (old, new), new)
BY_PATH(chmod, (const char *path, mode_t mode), (path, mode), path)
BY_PATH(chown, (const char *path, uid_t user, gid_t group), (path, user, group), path)
BY_FD(fchmod, (int fd, mode_t mode), (fd, mode))
BY_FD(fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
BY_FD(fsync, (int fd), (fd))
BY_FD(fdatasync, (int fd), (fd))
BY_FD(ftruncate64, (int fd, off_t size), (fd, size))
BY_FD(ftruncate, (int fd, off_t size), (fd, size))

ssize_t write(int fd, const void *data, size_t size)
{
    if (!of_interest(fd))
        return NEXT(write)(fd, data, size);
    int kind = next_kind();
    if (kind > 0) {
        errno = kind;
        return -1;
    }
    /* What ends in the middle of a write leaves a part of it. */
    ssize_t result = NEXT(write)(fd, data, (kind == SHORT || kind == KILL_AFTER) && size > 1 ? size / 2 : size);
    if (kind == KILL_AFTER)
        raise(SIGKILL);
    return result;
}

int close(int fd)
{
    int interesting = of_interest(fd), result;
    if (interesting)
        watched[fd] = 0;
    int kind = interesting ? next_kind() : NONE;
    result = NEXT(close)(fd);
    if (kind == KILL_AFTER)
        raise(SIGKILL);
    if (kind > 0 && result == 0) {
        errno = kind;
        return -1;
    }
    return result;
}
