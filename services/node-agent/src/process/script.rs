//! The two shell scripts between the agent and a process. They take everything as arguments, so nothing a pod says is
//! ever read as shell.

/// Runs a command as its child and writes down its pid with start time, and at the end its exit code.
/// Arguments: run directory, then the command.
pub(super) const SHELL: &str = r#"
run=$1; shift
# A trap that does something is not inherited, so the child still ends on SIGTERM.
trap : TERM INT HUP
"$@" &
child=$!
read -r stat < "/proc/$child/stat"
rest=${stat##*) }
set -- $rest
shift 19
printf '%s %s\n' "$child" "$1" > "$run/pid.new" && mv "$run/pid.new" "$run/pid"
while :; do
  wait "$child"; code=$?
  kill -0 "$child" 2>/dev/null || break
done
printf '%s\n' "$code" > "$run/exit.new" && mv "$run/exit.new" "$run/exit"
"#;

/// Inside a fresh mount namespace: builds a root out of the host's programs (read-only) and the pod's volumes, makes
/// it the only one there is, and becomes the command.
/// Arguments: directory to build the root in, file with mounts (kind, source, target; tabs between), user, group,
/// groups of the process, then the command.
pub(super) const ENTER: &str = r#"
set -eu
# Mount points made inside a disk have to be writable for its group: the image has an entry point that sees to that.
umask 002
root=$1 mounts=$2 user=$3 group=$4 groups=$5; shift 5
tab=$(printf '\t')
ulimit -n 1048576 2>/dev/null || ulimit -n "$(ulimit -Hn)"
mount -t tmpfs -o mode=0755,size=16m slipway "$root"
mkdir "$root/proc" "$root/dev" "$root/tmp" "$root/old" "$root/etc" "$root/usr"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
for name in bin sbin lib lib64; do
  if [ -L "/$name" ]; then
    cp -P "/$name" "$root/$name"
  elif [ -d "/$name" ]; then
    mkdir "$root/$name"
    mount --bind "/$name" "$root/$name"
    mount -o remount,bind,ro "$root/$name"
  fi
done
for path in /etc/alternatives /etc/java* /etc/ssl /etc/ca-certificates; do
  [ -d "$path" ] || continue
  mkdir "$root$path"
  mount --bind "$path" "$root$path"
  mount -o remount,bind,ro "$root$path"
done
for path in /etc/ld.so.cache /etc/passwd /etc/group /etc/nsswitch.conf /etc/localtime; do
  [ -e "$path" ] && cp -L "$path" "$root$path"
done
printf '127.0.0.1 localhost\n' > "$root/etc/hosts"
mount -t proc proc "$root/proc"
for name in null zero full random urandom; do
  : > "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mount -t tmpfs -o mode=1777,size=512m tmp "$root/tmp"
while IFS="$tab" read -r kind source target; do
  # A link would be followed to somewhere on the host.
  [ -L "$root$target" ] && rm -f "$root$target"
  case "$kind" in
    dir*) mkdir -p "$root$target" ;;
    file*) mkdir -p "${root}${target%/*}"; [ -e "$root$target" ] || : > "$root$target" ;;
  esac
  mount --bind "$source" "$root$target"
  case "$kind" in *-ro) mount -o remount,bind,ro "$root$target" ;; esac
done < "$mounts"
cd "$root"
pivot_root . old
exec chroot . /bin/sh -c '
set -eu
umount -l /old
rmdir /old
user=$1 group=$2 groups=$3; shift 3
if [ "$user" = 0 ] && [ "$group" = 0 ]; then exec "$@"; fi
exec setpriv --reuid "$user" --regid "$group" --groups "$groups" --inh-caps=-all "$@"
' enter "$user" "$group" "$groups" "$@"
"#;
