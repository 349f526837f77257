// Weights that stay in mapped files. A page that its file no longer has, because the file became shorter or the disk
// failed, ends a process by SIGBUS. Inside a guarded range it does not: zeros take the place of the whole range, the
// pass goes on with them, and its caller asks afterwards which file was lost. Other faults go to the handler that was
// there before. A file can also change without a fault, so sizes and times are compared, too.
//
// The handler may run in any thread, between any two instructions, so it takes no lock and allocates nothing: guards
// stand in a list that only grows, and those that were released are used again. All else is for one thread at a time.

#include <cstdint>

#if !defined(_WIN32)

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <vector>

#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif

namespace {

// The pages of a range; `first` 0: free for another one.
struct Guard {
    std::atomic<uintptr_t> first{0}, last{0};
    std::atomic<bool> is_lost{false};
    Guard* next = nullptr;
};

// A file as it was when its range was guarded.
struct MappedFile {
    std::string name;
    Guard* guard;
    struct stat status;
    bool is_known, is_emptied;
};

// The mapped files of a model, in one folder, which may get another name.
struct Folder {
    int descriptor;
    std::vector<MappedFile> files;
};

std::atomic<Guard*> guards{nullptr};
std::atomic<bool> is_passing_on{false};
std::mutex changes;  // of guards and of the handler
struct sigaction previous;

// What would have happened without our handler.
void pass_on(int signal, siginfo_t* info, void* context) {
    const bool calls_itself = is_passing_on.exchange(true);  // a handler that went before ours again
    if (!calls_itself && (previous.sa_flags & SA_SIGINFO)) {
        previous.sa_sigaction(signal, info, context);
    } else if (!calls_itself && previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else {
        struct sigaction fallback = {};
        fallback.sa_handler = SIG_DFL;
        sigaction(signal, &fallback, nullptr);
        if (info->si_code <= 0) raise(signal);  // somebody sent it; else the same instruction faults again
    }
    is_passing_on = false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
    const int error_number = errno;
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Guard* guard = guards.load(); guard != nullptr && info->si_code > 0; guard = guard->next) {
        const uintptr_t first = guard->first, last = guard->last;
        if (first == 0 || address < first || address >= last) continue;
        void* zeros = mmap(reinterpret_cast<void*>(first), last - first, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        if (zeros == MAP_FAILED) break;
        guard->is_lost = true;
        errno = error_number;
        return;
    }
    pass_on(signal, info, context);
}

// Puts our handler before the one that is there.
void install() {
    struct sigaction current = {}, ours = {};
    sigaction(SIGBUS, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_bus_error) return;
    previous = current;
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, nullptr);
}

Guard* new_guard(uintptr_t first, uintptr_t last) {
    const std::lock_guard<std::mutex> lock(changes);
    install();
    Guard* guard = guards.load();
    while (guard != nullptr && guard->first != 0) guard = guard->next;
    if (guard == nullptr) {
        guard = new Guard;
        guard->next = guards.load();
        guards = guard;
    }
    guard->is_lost = false;
    guard->last = last;
    guard->first = first;
    return guard;
}

#if defined(__APPLE__)
const timespec& modified(const struct stat& status) { return status.st_mtimespec; }
#else
const timespec& modified(const struct stat& status) { return status.st_mtim; }
#endif

// Whether a file is not what it was when it was mapped. One that is gone is: its pages stay.
bool has_changed(const Folder& folder, MappedFile& file) {
    if (file.guard->is_lost) {
        const int descriptor = file.is_emptied ? -1 : openat(folder.descriptor, file.name.c_str(), O_WRONLY | O_TRUNC);
        if (descriptor >= 0) close(descriptor);  // emptied, so that it is made anew also where only the disk failed
        file.is_emptied = true;
        return true;
    }
    struct stat now;
    if (!file.is_known || fstatat(folder.descriptor, file.name.c_str(), &now, 0) != 0) return false;
    const timespec &one = modified(now), &other = modified(file.status);
    return now.st_size != file.status.st_size || one.tv_sec != other.tv_sec || one.tv_nsec != other.tv_nsec;
}

}  // namespace

extern "C" {

// A folder with mapped files; 0 where it cannot be opened.
int64_t open_mapped_folder(const char* path) {
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return descriptor < 0 ? 0 : reinterpret_cast<int64_t>(new Folder{descriptor, {}});
}

// Guards the pages with these bytes of a mapped file; what the file has before and after them there may be lost, too.
int64_t guard_mapped_file(int64_t folder, const char* name, int64_t address, int64_t bytes) {
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), end = uintptr_t(address) + uintptr_t(bytes);
    auto* owner = reinterpret_cast<Folder*>(folder);
    Guard* guard = new_guard(uintptr_t(address) / page * page, (end + page - 1) / page * page);
    MappedFile file{name, guard, {}, false, false};
    file.is_known = fstatat(owner->descriptor, name, &file.status, 0) == 0;
    owner->files.push_back(file);
    return 0;
}

// The name of a file that has changed, as the address of its characters; 0 for none.
int64_t changed_mapped_file(int64_t folder) {
    auto* owner = reinterpret_cast<Folder*>(folder);
    for (MappedFile& file : owner->files) {
        if (has_changed(*owner, file)) return reinterpret_cast<int64_t>(file.name.c_str());
    }
    return 0;
}

// When nothing reads its files any more.
int64_t close_mapped_folder(int64_t folder) {
    auto* owner = reinterpret_cast<Folder*>(folder);
    for (const MappedFile& file : owner->files) file.guard->first = 0;
    close(owner->descriptor);
    delete owner;
    return 0;
}
}

#else  // a mapped file cannot become shorter there

extern "C" {
int64_t open_mapped_folder(const char*) { return 0; }
int64_t guard_mapped_file(int64_t, const char*, int64_t, int64_t) { return 0; }
int64_t changed_mapped_file(int64_t) { return 0; }
int64_t close_mapped_folder(int64_t) { return 0; }
}

#endif
