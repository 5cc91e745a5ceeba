// A mirror of a folder for reading, by libfuse 3 and the JVM's foreign functions: java Mirror.java FOLDER MOUNTPOINT.
import java.lang.foreign.*;
import java.lang.invoke.*;
import static java.lang.foreign.ValueLayout.*;

public class Mirror {
    static final Linker LINKER = Linker.nativeLinker();
    static final SymbolLookup FUSE = SymbolLookup.libraryLookup("libfuse3.so.3", Arena.global());
    static final StructLayout STATE = Linker.Option.captureStateLayout();
    static final VarHandle ERRNO = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    static String root;

    static MethodHandle call(String name, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(LINKER.defaultLookup().find(name).orElseThrow(),
            FunctionDescriptor.of(result, arguments), Linker.Option.captureCallState("errno"));
    }

    static final MethodHandle LSTAT = call("lstat", JAVA_INT, ADDRESS, ADDRESS);
    static final MethodHandle OPEN = call("open", JAVA_INT, ADDRESS, JAVA_INT);
    static final MethodHandle PREAD = call("pread", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_LONG);
    static final MethodHandle CLOSE = call("close", JAVA_INT, JAVA_INT);
    static final MethodHandle READLINK = call("readlink", JAVA_LONG, ADDRESS, ADDRESS, JAVA_LONG);
    static final MethodHandle OPENDIR = call("opendir", ADDRESS, ADDRESS);
    static final MethodHandle READDIR = call("readdir", ADDRESS, ADDRESS);
    static final MethodHandle CLOSEDIR = call("closedir", JAVA_INT, ADDRESS);
    static final MethodHandle FILL = LINKER.downcallHandle(
        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT));

    static MemorySegment real(Arena arena, MemorySegment path) {
        return arena.allocateFrom(root + path.reinterpret(4097).getString(0));
    }

    static int error(MemorySegment state) {
        return -(int) ERRNO.get(state, 0L);
    }

    static int getattr(MemorySegment path, MemorySegment stat, MemorySegment info) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            return (int) LSTAT.invoke(state, real(arena, path), stat) == -1 ? error(state) : 0;
        } catch (Throwable why) { return -5; }
    }

    static int readlink(MemorySegment path, MemorySegment buffer, long size) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            long got = (long) READLINK.invoke(state, real(arena, path), buffer, size - 1);
            if (got == -1) return error(state);
            buffer.reinterpret(size).set(JAVA_BYTE, got, (byte) 0);
            return 0;
        } catch (Throwable why) { return -5; }
    }

    // struct fuse_file_info: flags at 0, fh at 16.
    static int open(MemorySegment path, MemorySegment info) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE), of = info.reinterpret(40);
            int fd = (int) OPEN.invoke(state, real(arena, path), of.get(JAVA_INT, 0));
            if (fd == -1) return error(state);
            of.set(JAVA_LONG, 16, fd);
            return 0;
        } catch (Throwable why) { return -5; }
    }

    static int read(MemorySegment path, MemorySegment buffer, long size, long offset, MemorySegment info) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            int fd = (int) info.reinterpret(40).get(JAVA_LONG, 16);
            long got = (long) PREAD.invoke(state, fd, buffer, size, offset);
            return got == -1 ? error(state) : (int) got;
        } catch (Throwable why) { return -5; }
    }

    static int release(MemorySegment path, MemorySegment info) {
        try (Arena arena = Arena.ofConfined()) {
            CLOSE.invoke(arena.allocate(STATE), (int) info.reinterpret(40).get(JAVA_LONG, 16));
            return 0;
        } catch (Throwable why) { return -5; }
    }

    static int readdir(MemorySegment path, MemorySegment buffer, MemorySegment fill, long offset, MemorySegment info, int flags) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            MemorySegment dir = (MemorySegment) OPENDIR.invoke(state, real(arena, path));
            if (dir.equals(MemorySegment.NULL)) return error(state);
            while (true) {
                MemorySegment entry = (MemorySegment) READDIR.invoke(state, dir);
                if (entry.equals(MemorySegment.NULL)) break;
                int full = (int) FILL.invoke(fill, buffer, MemorySegment.ofAddress(entry.address() + 19), MemorySegment.NULL, 0L, 0);
                if (full != 0) break;
            }
            CLOSEDIR.invoke(state, dir);
            return 0;
        } catch (Throwable why) { return -5; }
    }

    static MemorySegment upcall(String name, FunctionDescriptor what) throws Exception {
        return LINKER.upcallStub(MethodHandles.lookup().findStatic(Mirror.class, name, what.toMethodType()), what, Arena.global());
    }

    public static void main(String[] arguments) throws Throwable {
        root = arguments[0];
        Arena arena = Arena.global();
        MemorySegment operations = arena.allocate(ADDRESS, 64);
        operations.setAtIndex(ADDRESS, 0, upcall("getattr", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS)));
        operations.setAtIndex(ADDRESS, 1, upcall("readlink", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG)));
        operations.setAtIndex(ADDRESS, 12, upcall("open", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS)));
        operations.setAtIndex(ADDRESS, 13, upcall("read", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, JAVA_LONG, ADDRESS)));
        operations.setAtIndex(ADDRESS, 17, upcall("release", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS)));
        operations.setAtIndex(ADDRESS, 24, upcall("readdir", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS, JAVA_INT)));
        String[] words = { "mirror", "-f", arguments[1] };
        MemorySegment argv = arena.allocate(ADDRESS, words.length + 1);
        for (int at = 0; at < words.length; at++) argv.setAtIndex(ADDRESS, at, arena.allocateFrom(words[at]));
        MethodHandle run = LINKER.downcallHandle(FUSE.find("fuse_main_real").orElseThrow(),
            FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
        System.exit((int) run.invoke(words.length, argv, operations, 42L * 8, MemorySegment.NULL));
    }
}
