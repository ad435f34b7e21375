/* A file system that passes everything on to a directory, so that its daemon can be stopped: a mount that hangs.
 *
 *   gcc -O2 slowfs.c -o slowfs $(pkg-config --cflags --libs fuse3)
 *   [SLOWFS_FAIL=OPERATION:ERRNO:N] [SLOWFS_LOG=FILE] [SLOWFS_KEEPS=1] slowfs DIRECTORY MOUNTPOINT -f [-o OPTIONS]
 *
 * With SLOWFS_FAIL every N-th write, read, fsync or close fails with that error number, but for markers and locks.
 * With SLOWFS_LOG a line "read|write DEVICE:INODE:BIRTH OFFSET BYTES PATH" is written down for all that arrives here:
 * what the page cache serves does not. Files stay in that cache after they are closed.
 * With SLOWFS_KEEPS what was brought to storage stays in the page cache behind this daemon.
 * With SLOWFS_OLD attributes, names and contents stay as they were first seen, as on NFS with nocto and a long actimeo.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static char *root;
static char failing[16];
static int failing_errno;
static unsigned failing_every;
static atomic_uint calls;
static int events = -1;
static int keeps;
static int old;

static int fails(const char *operation, const char *path)
{
    if (strcmp(operation, failing) || strstr(path, "/.iogauge") || strstr(path, "/.lock"))
        return 0;
    return ++calls % failing_every ? 0 : -failing_errno;
}

/* Writes down what arrived, in the words of tests/support/lustre/standin.py, function identity. */
static void note(const char *what, const char *path, off_t at, ssize_t bytes, int fd)
{
    struct stat info;
    struct statx more;
    if (events < 0 || bytes <= 0)
        return;
    if (fstat(fd, &info) || statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &more) ||
        dprintf(events, "%s %llu:%llu:%lld.%u %lld %zd %s\n", what, (unsigned long long)info.st_dev,
                (unsigned long long)info.st_ino, (long long)more.stx_btime.tv_sec, more.stx_btime.tv_nsec,
                (long long)at, bytes, path) < 0)
        abort();
}

#define BELOW(name, path)                                                                                             \
    char name[PATH_MAX];                                                                                               \
    snprintf(name, sizeof name, "%s%s", root, path)
#define ANSWER(call) return (call) == -1 ? -errno : 0

static int fs_getattr(const char *path, struct stat *info, struct fuse_file_info *file)
{
    if (file)
        ANSWER(fstat(file->fh, info));
    BELOW(at, path);
    ANSWER(lstat(at, info));
}
static int fs_readlink(const char *path, char *text, size_t size)
{
    BELOW(at, path);
    ssize_t length = readlink(at, text, size - 1);
    if (length < 0)
        return -errno;
    text[length] = 0;
    return 0;
}
static int fs_mkdir(const char *path, mode_t mode) { BELOW(at, path); ANSWER(mkdir(at, mode)); }
static int fs_unlink(const char *path) { BELOW(at, path); ANSWER(unlink(at)); }
static int fs_rmdir(const char *path) { BELOW(at, path); ANSWER(rmdir(at)); }
static int fs_symlink(const char *text, const char *path) { BELOW(at, path); ANSWER(symlink(text, at)); }
static int fs_rename(const char *path, const char *to, unsigned flags)
{
    BELOW(at, path);
    BELOW(there, to);
    ANSWER(renameat2(AT_FDCWD, at, AT_FDCWD, there, flags));
}
static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
    (void)file;
    BELOW(at, path);
    ANSWER(chmod(at, mode));
}
static int fs_truncate(const char *path, off_t size, struct fuse_file_info *file)
{
    if (file)
        ANSWER(ftruncate(file->fh, size));
    BELOW(at, path);
    ANSWER(truncate(at, size));
}
static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *file)
{
    (void)file;
    BELOW(at, path);
    ANSWER(utimensat(AT_FDCWD, at, times, AT_SYMLINK_NOFOLLOW));
}
static int open_below(const char *path, int flags, mode_t mode, struct fuse_file_info *file)
{
    BELOW(at, path);
    file->direct_io = (file->flags & O_DIRECT) != 0;
    int fd = open(at, flags & ~(O_DIRECT | O_APPEND | O_ASYNC), mode);
    if (fd < 0)
        return -errno;
    file->fh = fd;
    return 0;
}
static int fs_open(const char *path, struct fuse_file_info *file) { return open_below(path, file->flags, 0, file); }
static int fs_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
    return open_below(path, file->flags | O_CREAT, mode, file);
}
static int fs_read(const char *path, char *data, size_t size, off_t at, struct fuse_file_info *file)
{
    int error = fails("read", path);
    if (error)
        return error;
    ssize_t done = pread(file->fh, data, size, at);
    note("read", path, at, done, file->fh);
    return done < 0 ? -errno : (int)done;
}
static int fs_write(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *file)
{
    int error = fails("write", path);
    if (error)
        return error;
    ssize_t done = pwrite(file->fh, data, size, at);
    note("write", path, at, done, file->fh);
    return done < 0 ? -errno : (int)done;
}
static int fs_statfs(const char *path, struct statvfs *info) { BELOW(at, path); ANSWER(statvfs(at, info)); }
static int fs_flush(const char *path, struct fuse_file_info *file)
{
    (void)file;
    return fails("close", path);
}
static int fs_release(const char *path, struct fuse_file_info *file)
{
    (void)path;
    close(file->fh);
    return 0;
}
static int fs_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
    int error = fails("fsync", path);
    if (error)
        return error;
    int done = data_only ? fdatasync(file->fh) : fsync(file->fh);
    if (!done && !keeps)
        posix_fadvise(file->fh, 0, 0, POSIX_FADV_DONTNEED);
    ANSWER(done);
}
static int fs_fallocate(const char *path, int mode, off_t at, off_t size, struct fuse_file_info *file)
{
    (void)path;
    ANSWER(fallocate(file->fh, mode, at, size));
}
static int fs_readdir(const char *path, void *list, fuse_fill_dir_t add, off_t from, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags)
{
    (void)from, (void)file, (void)flags;
    BELOW(at, path);
    DIR *directory = opendir(at);
    if (!directory)
        return -errno;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat info = {.st_ino = entry->d_ino, .st_mode = entry->d_type << 12};
        if (add(list, entry->d_name, &info, 0, 0))
            break;
    }
    closedir(directory);
    return 0;
}

static int fs_opendir(const char *path, struct fuse_file_info *file)
{
    (void)path;
    file->cache_readdir = file->keep_cache = old;
    return 0;
}

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    config->use_ino = 1;
    if (events >= 0) {
        config->kernel_cache = 1;
        connection->want &= ~FUSE_CAP_AUTO_INVAL_DATA;
    }
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    if (old) {
        config->kernel_cache = 1;
        config->entry_timeout = config->attr_timeout = 3600;
    }
    return NULL;
}

static const struct fuse_operations operations = {
    .init = fs_init,         .getattr = fs_getattr,   .readlink = fs_readlink, .mkdir = fs_mkdir,
    .unlink = fs_unlink,     .rmdir = fs_rmdir,       .symlink = fs_symlink,   .rename = fs_rename,
    .chmod = fs_chmod,       .truncate = fs_truncate, .utimens = fs_utimens,   .open = fs_open,
    .create = fs_create,     .read = fs_read,         .write = fs_write,       .statfs = fs_statfs,
    .flush = fs_flush,       .release = fs_release,   .fsync = fs_fsync,       .fallocate = fs_fallocate, .readdir = fs_readdir,
    .opendir = fs_opendir,
};

int main(int count, char **words)
{
    if (count < 3 || !(root = realpath(words[1], NULL))) {
        fprintf(stderr, "usage: slowfs DIRECTORY MOUNTPOINT [FUSE OPTIONS]\n");
        return 2;
    }
    keeps = getenv("SLOWFS_KEEPS") != NULL;
    old = getenv("SLOWFS_OLD") != NULL;
    const char *fail = getenv("SLOWFS_FAIL");
    if (fail && sscanf(fail, "%15[a-z]:%d:%u", failing, &failing_errno, &failing_every) != 3)
        return 2;
    const char *log = getenv("SLOWFS_LOG");
    if (log && (events = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0)
        return 2;
    umask(0);
    words[1] = words[0];
    return fuse_main(count - 1, words + 1, &operations, NULL);
}
