/*
 * Preloaded into QEMU: the guest's time runs D times slower than the host's, so that emulated
 * instructions cost about what real ones do. The virtual devices run on the same slow clock
 * (lab/src/clock.rs, which makes the page both share).
 *
 *     guest ns = (host ns - origin) / D + skipped
 *
 * While nobody can do anything before a known moment - every virtual CPU halted, QEMU's loops
 * asleep with no input, every device waiting - `skipped` grows to reach that moment at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The shared page, in words of 64 bits. Keep in step with lab/src/clock.rs. */
enum { WORD_VERSION, WORD_RATE, WORD_ORIGIN, WORD_SKIPPED, WORD_ACTIVITY, WORD_SKIPS, WORD_MAY_SKIP, WORD_DEVICES, WORD_NEXT };
enum { MAX_DEVICES = 8, WORDS = WORD_NEXT + MAX_DEVICES };
#define AWAKE 0
#define NEVER INT64_MAX

enum { MAX_CPUS = 16, MAX_LOOPS = 8, MAX_FDS = 64 };
enum {
    NS_PER_S = 1000000000,
    LOOK_BUSY_NS = 300000,      /* how often idleness is looked for */
    LOOK_IDLE_NS = 30000,       /* the same when it may be about to be found */
    SETTLE_NS = 100000,         /* host time without any activity that counts as idle */
    SETTLE_UNSURE_NS = 3000000, /* the same with no device event ahead: a worker may be busy */
    LEAST_SKIP_NS = 15000,
    MOST_SKIP_NS = 50000000,
    HALT_POLL_NS = 200000, /* guest time; what KVM does by default */
    PAUSES_PER_LOOK = 16,
};

static _Atomic int64_t *shared_words;
static struct timespec real_start;
static int cpu_count, loop_count;
static int wake_main_fd = -1, wake_device_fd[MAX_DEVICES];
static pid_t main_thread;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_cond_signal)(pthread_cond_t *);
static int (*real_cond_broadcast)(pthread_cond_t *);

/* A virtual CPU, and the condition it is halted on. Whoever signals it clears that, so a CPU that
 * is about to run but has no host CPU yet is not taken for a halted one. */
static struct { _Atomic(pthread_cond_t *) halted_on; } cpus[MAX_CPUS];
static _Atomic int cpus_seen;

/* QEMU's main loop and its I/O threads. */
static struct {
    _Atomic int asleep;
    _Atomic int64_t deadline_ns;
    _Atomic int count;
    struct pollfd fds[MAX_FDS];
} loops[MAX_LOOPS];
static _Atomic int loops_seen;

static int64_t host_now(void)
{
    struct timespec time;
    real_clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * NS_PER_S + time.tv_nsec;
}

static double rate_now(void)
{
    int64_t bits = atomic_load(&shared_words[WORD_RATE]);
    double rate;
    memcpy(&rate, &bits, sizeof rate);
    return rate;
}

static int64_t guest_now(void)
{
    for (;;) {
        /* The rate changes once, after the boot; its version is odd meanwhile. */
        int64_t version = atomic_load(&shared_words[WORD_VERSION]);
        double rate = rate_now();
        int64_t origin = atomic_load(&shared_words[WORD_ORIGIN]);
        int64_t now = (int64_t)((double)(host_now() - origin) / rate) + atomic_load(&shared_words[WORD_SKIPPED]);
        if (version % 2 == 0 && atomic_load(&shared_words[WORD_VERSION]) == version)
            return now;
    }
}

static void note_activity(void)
{
    atomic_fetch_add(&shared_words[WORD_ACTIVITY], 1);
}

/* ---- who is this thread? ---- */

enum kind { UNKNOWN, MAIN_LOOP, IO_LOOP, CPU, OTHER };
static __thread enum kind own_kind;
static __thread int own_index;

static enum kind kind(void)
{
    if (own_kind != UNKNOWN)
        return own_kind;
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    if (gettid() == main_thread) {
        own_kind = MAIN_LOOP;
    } else if (!strncmp(name, "CPU ", 4)) {
        own_kind = CPU;
        own_index = atomic_fetch_add(&cpus_seen, 1);
    } else if (!strncmp(name, "IO ", 3)) {
        own_kind = IO_LOOP;
    } else {
        return OTHER; /* names are given after a thread's start: ask again next time */
    }
    if (own_kind != CPU)
        own_index = atomic_fetch_add(&loops_seen, 1);
    if (own_index >= (own_kind == CPU ? MAX_CPUS : MAX_LOOPS)) {
        fprintf(stderr, "forebay-lab: more threads in QEMU than its time shim knows; use fewer CPUs\n");
        abort();
    }
    return own_kind;
}

/* ---- skipping idle time ---- */

/* The next moment at which anything can happen, or 0 while anything is going on. */
static int64_t next_event(int *device_ahead)
{
    int64_t next = NEVER;
    *device_ahead = 0;
    if (!atomic_load(&shared_words[WORD_MAY_SKIP]))
        return 0;
    if (atomic_load(&cpus_seen) < cpu_count || atomic_load(&loops_seen) < loop_count)
        return 0;
    for (int i = 0; i < cpu_count; i++)
        if (!atomic_load(&cpus[i].halted_on))
            return 0;
    for (int i = 0; i < loop_count; i++) {
        if (!atomic_load(&loops[i].asleep))
            return 0;
        int64_t deadline = atomic_load(&loops[i].deadline_ns);
        if (deadline < next)
            next = deadline;
    }
    int devices = (int)atomic_load(&shared_words[WORD_DEVICES]);
    for (int i = 0; i < devices && i < MAX_DEVICES; i++) {
        int64_t event = atomic_load(&shared_words[WORD_NEXT + i]);
        if (event == AWAKE)
            return 0;
        if (event != NEVER)
            *device_ahead = 1;
        if (event < next)
            next = event;
    }
    return next;
}

/* Whether a loop that sleeps has input it has not woken up for yet. */
static int input_waits(void)
{
    struct timespec none = { 0, 0 };
    for (int i = 0; i < loop_count; i++) {
        struct pollfd fds[MAX_FDS];
        int count = atomic_load(&loops[i].count);
        memcpy(fds, loops[i].fds, (size_t)count * sizeof *fds);
        if (real_ppoll(fds, (nfds_t)count, &none, NULL) != 0)
            return 1;
    }
    return 0;
}

static void skip_to(int64_t next)
{
    int64_t now = guest_now();
    if (next == NEVER || next - now < LEAST_SKIP_NS)
        return;
    int64_t skip = next - now > MOST_SKIP_NS ? MOST_SKIP_NS : next - now;
    atomic_fetch_add(&shared_words[WORD_SKIPPED], skip);
    atomic_fetch_add(&shared_words[WORD_SKIPS], 1);
    /* Every sleeper's time-out was set by the old clock: also one whose moment is later than this would
     * oversleep by what was skipped. */
    uint64_t one = 1;
    if (write(wake_main_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        perror("forebay-lab: waking QEMU's main loop");
    int devices = (int)atomic_load(&shared_words[WORD_DEVICES]);
    for (int i = 0; i < devices && i < MAX_DEVICES; i++)
        if (atomic_load(&shared_words[WORD_NEXT + i]) != NEVER)
            send(wake_device_fd[i], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void *look_for_idleness(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "time-skip");
    prctl(PR_SET_TIMERSLACK, 1);
    int64_t activity = -1, quiet_since = 0;
    struct timespec pause = { 0, LOOK_BUSY_NS };
    for (;;) {
        syscall(SYS_nanosleep, &pause, NULL);
        int64_t host = host_now(), seen = atomic_load(&shared_words[WORD_ACTIVITY]);
        int device_ahead;
        int64_t next = next_event(&device_ahead);
        pause.tv_nsec = next == 0 ? LOOK_BUSY_NS : LOOK_IDLE_NS;
        if (next == 0 || seen != activity) {
            activity = seen;
            quiet_since = host;
            continue;
        }
        if (host - quiet_since < (device_ahead ? SETTLE_NS : SETTLE_UNSURE_NS))
            continue;
        if (input_waits() || next_event(&device_ahead) != next || atomic_load(&shared_words[WORD_ACTIVITY]) != seen)
            continue;
        skip_to(next);
        quiet_since = host_now();
    }
    return NULL;
}

static void start_skipping(void)
{
    static int started;
    if (started)
        return;
    started = 1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    if (pthread_create(&thread, NULL, look_for_idleness, NULL)) {
        fprintf(stderr, "forebay-lab: cannot start the thread that skips idle time\n");
        abort();
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the guest's time stamp counter ---- */

static int64_t dilated_ticks(void)
{
    return guest_now() * 2; /* 2 GHz */
}

/* Makes the first bytes of a function of QEMU's a jump: nothing can interpose what it calls
 * inside itself. */
static void redirect(void *function, const void *target)
{
    uint8_t jump[12] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 };
    memcpy(jump + 2, &target, sizeof target);
    uintptr_t page = (uintptr_t)function & ~(uintptr_t)4095;
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        perror("forebay-lab: making QEMU's code writable");
        abort();
    }
    memcpy(function, jump, sizeof jump);
    mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}

/* QEMU reads the host's counter in cpu_get_ticks. */
static void replace_tick_source(void)
{
    uint8_t *code = dlsym(RTLD_DEFAULT, "cpu_get_ticks");
    if (!code) {
        fprintf(stderr, "forebay-lab: this QEMU does not export cpu_get_ticks, so its guest's clock cannot be slowed; use QEMU 7.2\n");
        abort();
    }
    redirect(code, dilated_ticks);
}

/* ---- the guest's checksum instruction ---- */

/* QEMU 7.2 computes the instruction crc32 bit by bit: with it 128 KiB cost what thirty times as
 * many would. So its function for that is replaced by the processor's own instruction, if there
 * is one, if the function is found (it has a name only in QEMU's table of such functions), and if
 * both give the same results. Otherwise checksums stay as dear as they are; the measured costs of
 * the guest's processor tell (lab/src/cost.rs). */
typedef uint64_t checksum_step(uint32_t sum, uint64_t message, uint32_t bits);

__attribute__((target("sse4.2"))) static uint64_t step_of_processor(uint32_t sum, uint64_t message, uint32_t bits)
{
    switch (bits) {
    case 8:
        return __builtin_ia32_crc32qi(sum, (uint8_t)message);
    case 16:
        return __builtin_ia32_crc32hi(sum, (uint16_t)message);
    case 32:
        return __builtin_ia32_crc32si(sum, (uint32_t)message);
    default:
        return __builtin_ia32_crc32di(sum, message);
    }
}

/* Whether an address is in a part of the program with these rights. */
static int is_in(const struct dl_phdr_info *program, uintptr_t address, uint32_t rights)
{
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &program->dlpi_phdr[i];
        uintptr_t from = program->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & rights) == rights && address >= from && address - from + 8 <= part->p_memsz)
            return 1;
    }
    return 0;
}

/* Looks for the function in the table of (function, name) of one writable part. */
static checksum_step *find_step_in(const struct dl_phdr_info *program, const ElfW(Phdr) *part)
{
    const uintptr_t *words = (const uintptr_t *)(program->dlpi_addr + part->p_vaddr);
    for (size_t i = 1; i < part->p_filesz / sizeof *words; i++) {
        if (is_in(program, words[i], PF_R) && is_in(program, words[i - 1], PF_X) && !strncmp((const char *)words[i], "crc32", 6))
            return (checksum_step *)words[i - 1];
    }
    return NULL;
}

static int find_step(struct dl_phdr_info *program, size_t size, void *found)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &program->dlpi_phdr[i];
        checksum_step *step = part->p_type == PT_LOAD && (part->p_flags & PF_W) ? find_step_in(program, part) : NULL;
        if (step)
            *(checksum_step **)found = step;
    }
    return 1; /* the first is QEMU itself */
}

static void replace_checksum_step(void)
{
    checksum_step *step = NULL;
    dl_iterate_phdr(find_step, &step);
    if (!step || !__builtin_cpu_supports("sse4.2"))
        return;
    uint64_t message = 0x0123456789abcdef;
    for (uint32_t bits = 8; bits <= 64; bits *= 2) {
        for (uint32_t sum = 1; sum; sum <<= 1) {
            message = message * 6364136223846793005 + sum;
            if ((uint32_t)step(sum, message, bits) != (uint32_t)step_of_processor(sum, message, bits))
                return;
        }
    }
    redirect((void *)step, step_of_processor);
}

/* ---- start ---- */

static void connect_device(const char *directory, int device)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s/wake.%d", directory, device);
    wake_device_fd[device] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (connect(wake_device_fd[device], (struct sockaddr *)&address, sizeof address)) {
        perror(address.sun_path);
        abort();
    }
}

__attribute__((constructor)) static void start(void)
{
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_ppoll = dlsym(RTLD_NEXT, "ppoll");
    real_cond_wait = dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
    real_cond_signal = dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");
    real_cond_broadcast = dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2");
    const char *directory = getenv("FOREBAY_LAB_CLOCK");
    if (!directory)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    main_thread = getpid();
    cpu_count = atoi(getenv("FOREBAY_LAB_CPUS"));
    loop_count = atoi(getenv("FOREBAY_LAB_LOOPS"));
    unsetenv("LD_PRELOAD");
    char path[200];
    snprintf(path, sizeof path, "%s/clock", directory);
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *page = mmap(NULL, WORDS * sizeof *shared_words, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || page == MAP_FAILED) {
        perror(path);
        abort();
    }
    close(file);
    shared_words = page;
    real_clock_gettime(CLOCK_REALTIME, &real_start);
    wake_main_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int devices = (int)atomic_load(&shared_words[WORD_DEVICES]);
    for (int i = 0; i < devices && i < MAX_DEVICES; i++)
        connect_device(directory, i);
    replace_tick_source();
    replace_checksum_step();
}

/* ---- what QEMU calls instead of the C library ---- */

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!real_clock_gettime)
        return (int)syscall(SYS_clock_gettime, clock, time);
    if (!shared_words || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
        return real_clock_gettime(clock, time);
    /* Monotonic time starts at a second: QEMU takes 0 for "not set". */
    int64_t now = guest_now() + (clock == CLOCK_REALTIME ? real_start.tv_nsec : NS_PER_S);
    time->tv_sec = now / NS_PER_S + (clock == CLOCK_REALTIME ? real_start.tv_sec : 0);
    time->tv_nsec = now % NS_PER_S;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

static struct timespec host_duration(int64_t guest_ns)
{
    double ns = guest_ns > 0 ? (double)guest_ns * rate_now() : 0;
    struct timespec time = { (time_t)(ns / NS_PER_S), 0 };
    time.tv_nsec = (long)(ns - (double)time.tv_sec * NS_PER_S);
    return time;
}

static int sleep_in_loop(struct pollfd *fds, nfds_t count, int64_t timeout_ns, const sigset_t *mask)
{
    /* The last place is for the skipper's wake-up. */
    if (count + 1 > MAX_FDS) {
        struct timespec duration = host_duration(timeout_ns);
        return real_ppoll(fds, count, timeout_ns < 0 ? NULL : &duration, mask);
    }
    struct pollfd own[MAX_FDS];
    int is_main = own_kind == MAIN_LOOP;
    memcpy(own, fds, count * sizeof *fds);
    if (is_main)
        own[count] = (struct pollfd){ wake_main_fd, POLLIN, 0 };
    nfds_t own_count = count + (nfds_t)is_main;
    memcpy(loops[own_index].fds, own, own_count * sizeof *own);
    atomic_store(&loops[own_index].count, (int)own_count);
    int64_t deadline = timeout_ns < 0 ? NEVER : guest_now() + timeout_ns;
    atomic_store(&loops[own_index].deadline_ns, deadline);
    note_activity();
    atomic_store(&loops[own_index].asleep, 1);
    struct timespec duration = host_duration(timeout_ns < 0 ? 0 : deadline - guest_now());
    int ready = real_ppoll(own, own_count, timeout_ns < 0 ? NULL : &duration, mask);
    int error = errno;
    atomic_store(&loops[own_index].asleep, 0);
    note_activity();
    memcpy(fds, own, count * sizeof *fds);
    if (is_main && ready > 0 && own[count].revents) {
        uint64_t times;
        if (read(wake_main_fd, &times, sizeof times) < 0 && errno != EAGAIN)
            perror("forebay-lab: reading the main loop's wake-up");
        ready--;
    }
    errno = error;
    return ready;
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    if (!shared_words)
        return real_ppoll(fds, count, timeout, mask);
    int64_t timeout_ns = timeout ? (int64_t)timeout->tv_sec * NS_PER_S + timeout->tv_nsec : -1;
    if (timeout_ns == 0)
        return real_ppoll(fds, count, timeout, mask);
    enum kind who = kind();
    if (who == MAIN_LOOP || who == IO_LOOP) {
        if (who == MAIN_LOOP)
            start_skipping();
        return sleep_in_loop(fds, count, timeout_ns, mask);
    }
    struct timespec duration = host_duration(timeout_ns);
    return real_ppoll(fds, count, timeout ? &duration : NULL, mask);
}

/* A halted virtual CPU stays awake for a while, as under KVM (halt_poll_ns). On a virtual host, to
 * put a processor to sleep and to wake it again takes up to a millisecond, which a real host's
 * does not: handing over from one thread of the guest to another would look fifty times as dear
 * as it is. */
static int poll_before_sleep(pthread_cond_t *condition)
{
    int64_t end = host_now() + (int64_t)(HALT_POLL_NS * rate_now());
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load(&cpus[own_index].halted_on) != condition)
                return 1;
            __builtin_ia32_pause();
        }
        /* QEMU's loops and the devices need a processor too. */
        sched_yield();
    } while (host_now() < end);
    return 0;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    if (!shared_words || kind() != CPU)
        return real_cond_wait(condition, mutex);
    note_activity();
    atomic_store(&cpus[own_index].halted_on, condition);
    /* Whoever signals clears that first, and holds the mutex or is seen under it. */
    pthread_mutex_unlock(mutex);
    int is_signalled = poll_before_sleep(condition);
    pthread_mutex_lock(mutex);
    int result = 0;
    if (!is_signalled && atomic_load(&cpus[own_index].halted_on) == condition)
        result = real_cond_wait(condition, mutex);
    atomic_store(&cpus[own_index].halted_on, NULL);
    note_activity();
    return result;
}

static void no_longer_halted(pthread_cond_t *condition)
{
    for (int i = 0; i < cpu_count; i++) {
        pthread_cond_t *expected = condition;
        if (atomic_compare_exchange_strong(&cpus[i].halted_on, &expected, NULL))
            note_activity();
    }
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    if (shared_words)
        no_longer_halted(condition);
    return real_cond_signal(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (shared_words)
        no_longer_halted(condition);
    return real_cond_broadcast(condition);
}

/* QEMU's loops then sleep in ppoll, which is interposed above. */
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    (void)entries;
    (void)ring;
    (void)flags;
    return -ENOSYS;
}
