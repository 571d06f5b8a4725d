package cgroup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/millrace-data/millrace/internal/cgroup"
)

// Example reads the limits of a container of 2.5 processors and 4 GiB, in a pod with 3 GiB.
func Example() {
	l, err := cgroup.ReadFrom(os.DirFS("testdata/pod"))
	fmt.Println(l.Memory>>20, l.MemoryFile, err)
	fmt.Println(l.CPUs, l.CPUFile)
	// Output:
	// 3072 /sys/fs/cgroup/kubepods/pod1/memory.max <nil>
	// 2.5 /sys/fs/cgroup/kubepods/pod1/c1/cpu.max
}

// tree makes a file system of lines "PATH: TEXT"; in the text ; is a line feed.
func tree(lines ...string) fs.FS {
	files := fstest.MapFS{}
	for _, line := range lines {
		name, text, _ := strings.Cut(line, ": ")
		files[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, ";", "\n") + "\n")}
	}
	return files
}

const (
	unified = "proc/self/mountinfo: 24 1 0:22 / / rw - ext4 /dev/vda rw;30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
	hybrid  = "proc/self/mountinfo: 32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct;35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory;" +
		"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd;41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
)

func TestLimits(t *testing.T) {
	const unlimited = "9223372036854771712"
	for _, c := range []struct {
		name   string
		root   fs.FS
		memory int64
		cpus   float64
	}{
		{"no control groups", tree(), 0, 0},
		{"none mounted", tree("proc/self/cgroup: 0::/a", "proc/self/mountinfo: 24 1 0:22 / / rw - ext4 /dev/vda rw"), 0, 0},
		{"no limit", tree("proc/self/cgroup: 0::/a", unified, "sys/fs/cgroup/a/memory.max: max", "sys/fs/cgroup/a/cpu.max: max 100000"), 0, 0},
		{"its own", tree("proc/self/cgroup: 0::/a", unified, "sys/fs/cgroup/a/memory.max: 1000", "sys/fs/cgroup/a/cpu.max: 150000 100000"), 1000, 1.5},
		{"slowed down before", tree("proc/self/cgroup: 0::/a", unified, "sys/fs/cgroup/a/memory.max: 1000", "sys/fs/cgroup/a/memory.high: 900"), 900, 0},
		{"of the group above", tree("proc/self/cgroup: 0::/a/b", unified, "sys/fs/cgroup/a/memory.max: 700", "sys/fs/cgroup/a/b/memory.max: 1000", "sys/fs/cgroup/a/cpu.max: max 100000", "sys/fs/cgroup/a/b/cpu.max: 50000 100000"), 700, 0.5},
		{"not of a neighbour", tree("proc/self/cgroup: 0::/a", unified, "sys/fs/cgroup/ab/memory.max: 700", "sys/fs/cgroup/a/b/memory.max: 600"), 0, 0},
		{"a name space of its own", tree("proc/self/cgroup: 0::/", unified, "sys/fs/cgroup/memory.max: 800"), 800, 0},
		{"mounted from another name space", tree("proc/self/cgroup: 0::/../../x", "proc/self/mountinfo: 30 24 0:26 /../.. /sys/fs/cgroup ro - cgroup2 cgroup rw", "sys/fs/cgroup/memory.max: 800"), 800, 0},
		{"a part is mounted", tree("proc/self/cgroup: 0::/docker/9/in", "proc/self/mountinfo: 30 24 0:26 /docker/9 /sys/fs/cgroup ro - cgroup2 cgroup rw", "sys/fs/cgroup/memory.max: 800", "sys/fs/cgroup/in/memory.max: 750"), 750, 0},
		{"a folder with a space", tree("proc/self/cgroup: 0::/a", `proc/self/mountinfo: 30 24 0:26 / /my\040groups ro - cgroup2 cgroup rw`, "my groups/a/memory.max: 5"), 5, 0},
		{"version 1", tree("proc/self/cgroup: 4:memory:/j;1:cpu,cpuacct:/k;0::/", hybrid, "sys/fs/cgroup/memory/j/memory.limit_in_bytes: 600", "sys/fs/cgroup/cpu,cpuacct/k/cpu.cfs_quota_us: 300000",
			"sys/fs/cgroup/cpu,cpuacct/k/cpu.cfs_period_us: 100000"), 600, 3},
		{"version 1, no limit", tree("proc/self/cgroup: 4:memory:/j;1:cpu,cpuacct:/k", hybrid, "sys/fs/cgroup/memory/j/memory.limit_in_bytes: "+unlimited, "sys/fs/cgroup/memory/j/memory.stat: cache 1;hierarchical_memory_limit "+unlimited,
			"sys/fs/cgroup/cpu,cpuacct/k/cpu.cfs_quota_us: -1", "sys/fs/cgroup/cpu,cpuacct/k/cpu.cfs_period_us: 100000"), 0, 0},
		{"version 1, above what is mounted", tree("proc/self/cgroup: 4:memory:/docker/1", "proc/self/mountinfo: 35 31 0:32 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
			"sys/fs/cgroup/memory/memory.limit_in_bytes: "+unlimited, "sys/fs/cgroup/memory/memory.stat: cache 1;hierarchical_memory_limit 500;total_cache 1"), 500, 0},
		{"nonsense", tree("proc/self/cgroup: memory;;4:memory", "proc/self/mountinfo: a b c;- cgroup2;1 2 3 4 5 - cgroup2", "sys/fs/cgroup/memory.max: -5"), 0, 0},
		{"numbers that are none", tree("proc/self/cgroup: 0::/a", unified, "sys/fs/cgroup/a/memory.max: 0", "sys/fs/cgroup/memory.max: 12k", "sys/fs/cgroup/a/cpu.max: 0 0", "sys/fs/cgroup/cpu.max: 5"), 0, 0},
	} {
		l, err := cgroup.ReadFrom(c.root)
		if err != nil || l.Memory != c.memory || math.Abs(l.CPUs-c.cpus) > 1e-9 {
			t.Errorf("%s: %+v, %v; want %d bytes, %g processors", c.name, l, err, c.memory, c.cpus)
		}
		if (l.Memory > 0) != (l.MemoryFile != "") || (l.CPUs > 0) != (l.CPUFile != "") {
			t.Errorf("%s: %+v: a limit has a file", c.name, l)
		}
	}
}

// TestRead reads this machine's, which may have none; Go follows the processors of it.
func TestRead(t *testing.T) {
	l, err := cgroup.Read()
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	t.Logf("%+v, GOMAXPROCS %d of %d", l, runtime.GOMAXPROCS(0), runtime.NumCPU())
	if os.Getenv("GOMAXPROCS") == "" && l.CPUs > 0 && runtime.GOMAXPROCS(0) > max(int(math.Ceil(l.CPUs)), 2) {
		t.Errorf("GOMAXPROCS is %d with %g processors' time", runtime.GOMAXPROCS(0), l.CPUs)
	}
}

// TestOwnGroup makes a group with a limit below this process's own, and reads it as a process in it would.
func TestOwnGroup(t *testing.T) {
	const below = "/sys/fs/cgroup/memory"
	text, err := os.ReadFile("/proc/self/cgroup")
	at := ""
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[1] == "memory" {
			at = fields[2]
		}
	}
	group := filepath.Join(below, at, "millrace-test-"+strconv.Itoa(os.Getpid()))
	if err != nil || at == "" || os.Mkdir(group, 0o755) != nil {
		t.Skip("no memory group can be made here")
	}
	defer os.Remove(group)
	if err := os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte("67108864"), 0); err != nil {
		t.Skip(err)
	}
	l, err := cgroup.ReadFrom(moved{os.DirFS("/"), strings.ReplaceAll(string(text), ":memory:"+at, ":memory:"+filepath.Join(at, filepath.Base(group)))})
	if err != nil || l.Memory != 64<<20 || !strings.HasPrefix(l.MemoryFile, group) {
		t.Errorf("%+v, %v; want 64 MiB of %s", l, err, group)
	}
}

// moved is a root whose process is in another group.
type moved struct {
	fs.FS
	groups string
}

func (m moved) Open(name string) (fs.File, error) {
	if name == "proc/self/cgroup" {
		return tree("g: " + strings.TrimSuffix(m.groups, "\n")).Open("g")
	}
	return m.FS.Open(name)
}

// FuzzReadFrom: whatever the files say, there is no panic and no limit below zero.
func FuzzReadFrom(f *testing.F) {
	f.Add("0::/a\n", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "5\n", "1 2\n")
	f.Add("4:memory:/j\n", "35 31 0:32 /docker /m rw - cgroup cgroup rw,memory\n", "hierarchical_memory_limit 5\n", "-1\n")
	f.Fuzz(func(t *testing.T, groups, mounts, memory, cpu string) {
		root := fstest.MapFS{"proc/self/cgroup": {Data: []byte(groups)}, "proc/self/mountinfo": {Data: []byte(mounts)}}
		for file, text := range map[string]string{"memory.max": memory, "memory.limit_in_bytes": memory, "memory.stat": memory, "cpu.max": cpu, "cpu.cfs_quota_us": cpu, "cpu.cfs_period_us": cpu} {
			root["sys/fs/cgroup/"+file] = &fstest.MapFile{Data: []byte(text)}
		}
		if l, err := cgroup.ReadFrom(root); err != nil || l.Memory < 0 || l.CPUs < 0 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}
