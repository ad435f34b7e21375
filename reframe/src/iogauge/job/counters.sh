# shellcheck shell=dash
# iogauge: count what this node has moved, below all mounts. Sourced by witness.sh for the first task of a node alone: a
# shell takes time to read functions, and the other tasks count nothing. Needs background.sh.
#
#   iog_count                 set $counted to all counters that are not zero, and $answers to the counts of the Lustre client's
#                             $devices. lustre=ANSWERED,ASKED tells how many of them there are, disks=N,N how many block devices
#   iog_grow COUNTED ANSWERS  set $counted to what has grown since; lustre then tells how many devices are in both counts

iog_count() {
    count_devices
    count_mounts
    count_networks
    find_devices
    answers=''
    [ -z "$devices" ] || ask_devices
    # shellcheck disable=SC2086 # one word for each device
    set -- $answers
    tell_devices "$answers" $#
}

iog_grow() {
    local before counter name old grown all=''
    before=$1
    iog_count
    for counter in $counted; do
        name=${counter%=*} old=0,0,0,0
        case "$before " in
            *" $counter "*) continue ;;
            *" $name="*)
                old=${before#*" $name="}
                old=${old%% *}
                ;;
        esac
        subtract "${counter##*=}" "$old"
        all="$all $name=$grown"
    done
    counted=$all
    grow_devices "$2"
    tell_devices "$moved" "$heard"
}

# Append to $counted how many block devices the kernel lists, which a container may hide, and the counts of Lustre's $devices.
tell_devices() {
    local moved=$1 heard=$2 asked
    counted="$counted disks=$disks,$disks"
    # shellcheck disable=SC2086 # one word for each device
    set -- $devices
    [ $# -gt 0 ] || return 0
    asked=$#
    # shellcheck disable=SC2086
    set -- $moved
    counted="$counted${1:+ $*} lustre=$heard,$asked"
}

# Set $grown to the differences of sums that commas separate.
subtract() {
    local now=$1 old=$2
    grown=$((${now%%,*} - ${old%%,*}))
    while [ "$now" != "${now#*,}" ]; do
        now=${now#*,} old=${old#*,}
        grown="$grown,$((${now%%,*} - ${old%%,*}))"
    done
}

# Set $counted to all counters of block devices that are not zero, and $interfaces to NAME=RECEIVED,SENT of each network.
count_devices() {
    local line lines name IFS
    counted='' interfaces='' disks=0
    # One program for both files: a shell's read takes a file of /proc byte by byte.
    lines=$(cat /proc/diskstats /proc/net/dev 2>/dev/null)
    IFS='
'
    for line in $lines; do
        IFS=' '
        case $line in
            *'|'*) ;; # titles above the networks
            *:*)
                # shellcheck disable=SC2086 # one word for each field
                set -- ${line%%:*} ${line#*:}
                interfaces="$interfaces $1=$2,${10}"
                ;;
            *)
                # shellcheck disable=SC2086
                set -- $line
                disks=$((disks + 1))
                # Paths of an NVMe disk have no number of their own.
                case $3 in nvme*c*n*) name=$3 ;; *) name=$1:$2 ;; esac
                [ "$6${10}" = 00 ] || counted="$counted $name=$6,${10},$4,$8"
                ;;
        esac
    done
}

# Append to $counted all counters of NFS.
count_mounts() {
    local point='' word rest
    # The kernel makes this directory for its client of NFS. Without it there is no NFS among the mounts.
    [ -d /proc/fs/nfsfs ] || return 0
    # A line "device SOURCE mounted on POINT with fstype TYPE" begins a mount. On NFS a line of eight sums follows: the
    # fifth and the sixth are those of the server.
    while read -r word rest; do
        case $word in
            device)
                # shellcheck disable=SC2086
                set -- $rest
                case ${7:-} in nfs | nfs4) point=$4 ;; *) point='' ;; esac
                ;;
            bytes:)
                # shellcheck disable=SC2086
                set -- $rest
                [ -z "$point" ] || counted="$counted $point=$5,$6"
                ;;
        esac
    done 2>/dev/null </proc/self/mountstats
}

# Append to $counted what all networks of this node have moved, net=RECEIVED,SENT. A client in the kernel or in a program
# reaches its servers through them, RDMA through ports that count words of four bytes. A port that counts no further is left out.
count_networks() {
    local name port counts received=0 sent=0 in out kind by_port=''
    set +f
    for port in /sys/class/infiniband/*/ports/*/counters; do
        { read -r in <"$port/port_rcv_data" && read -r out <"$port/port_xmit_data"; } 2>/dev/null || continue
        case " $in $out " in *' 4294967295 '*) continue ;; esac
        received=$((received + 4 * in)) sent=$((sent + 4 * out)) by_port=1
    done
    for counts in $interfaces; do
        name=${counts%=*} counts=${counts##*=}
        # An interface over others, as a bond or a VLAN, counts their bytes once more.
        set -- "/sys/class/net/$name"/lower_*
        [ ! -e "$1" ] || continue
        kind=
        # Interfaces of InfiniBand, whose bytes the ports have counted.
        [ -z "$by_port" ] || read -r kind 2>/dev/null <"/sys/class/net/$name/type" || kind=
        [ "$kind" = 32 ] || received=$((received + ${counts%,*})) sent=$((sent + ${counts#*,}))
    done
    set -f
    [ "$received$sent" = 00 ] || counted="$counted net=$received,$sent"
}

# Set $devices to the names of this node's Lustre devices, as lctl(8) wants them. A metadata server has devices of its own
# for the storage targets, which are not the client's.
find_devices() {
    local device
    devices=''
    # Of what is not judged nobody reads them.
    # shellcheck disable=SC2154 # of witness.sh
    case $execution in *.0) return ;; esac
    set +f
    set -- /sys/fs/lustre/osc/*-OST*-osc-* /sys/fs/lustre/mdc/*-MDT*-mdc-*
    set -f
    for device; do
        case $device in
            *'*'* | *-osc-MDT*) ;;
            *) devices="$devices ${device#/sys/fs/lustre/}" ;;
        esac
    done
}

# Set $answers to what $devices have moved, and in how many requests, DEVICE=READ,WRITTEN,READS,WRITES each. Every device is asked for by its whole name: for a
# pattern, lctl of 2.17 gives an ordinary user values under wrong names. It also drops the last character of each line, which
# is one of the sum of squares. Its exit status is 2 even if it answers. Older clients answer root alone, some without squares.
ask_devices() {
    local fields=8
    [ ! -x /sys/kernel/debug/lustre ] || fields=7
    ask_lctl || { start_lctl && ask_lctl; } || return 0
    answers=$(awk -v "fields=$fields" '
        function tell() { if (name != "" && sound) print name "=" read "," written "," reads "," writes }
        /^(osc|mdc)\.[^ ]*\.stats=$/ { tell(); split($1, part, "."); name = part[2]; read = written = reads = writes = 0; sound = 1; next }
        $1 == "read_bytes" { read = $7; reads = $2; sound = sound && $4 == "[bytes]" && NF >= fields }
        $1 == "write_bytes" { written = $7; writes = $2; sound = sound && $4 == "[bytes]" && NF >= fields }
        END { tell() }' <&"$answers_fd")
}

# Start an lctl that answers before the tool and after it, as each start is dear. Set the descriptors of its questions, of its
# answers, and of its standard error. It ends with the last process that can ask it.
start_lctl() {
    local folder first
    # A launcher may have left a descriptor to this shell, by which the tool speaks to it.
    if are_free 7 8 9; then first=7; elif are_free 4 5 6; then first=4; else return 1; fi
    folder=$(mktemp -d) || return 1
    : >"$folder/answers"
    if ! mkfifo "$folder/questions" "$folder/errors"; then
        rm -r "$folder"
        return 1
    fi
    iog_start serve_lctl "$folder"
    IOG_TOOL=
    if [ "$first" = 7 ]; then
        exec 7>"$folder/questions" 8<"$folder/answers" 9<"$folder/errors"
    else
        exec 4>"$folder/questions" 5<"$folder/answers" 6<"$folder/errors"
    fi
    questions_fd=$first answers_fd=$((first + 1)) errors_fd=$((first + 2))
    rm -r "$folder"
}

# Become an lctl that reads its commands from a pipe.
serve_lctl() {
    PATH=$PATH:/usr/sbin:/sbin
    exec lctl <"$1/questions" >>"$1/answers" 2>"$1/errors"
}

# Succeed if no descriptor of these numbers is open.
are_free() {
    local number
    for number; do
        [ ! -e "/proc/$$/fd/$number" ] || return 1
    done
}

# Ask lctl for $devices. It fails if lctl has ended.
ask_lctl() {
    local line
    [ -n "${questions_fd:-}" ] || return 1
    # In a shell of its own, which alone dies of a pipe that nobody reads.
    iog_start write_questions
    # shellcheck disable=SC2034 # of background.sh
    IOG_TOOL=
    while read -r line <&"$errors_fd"; do
        case $line in get_param:*) return 0 ;; esac
    done
    return 1
}

# The answer to the last question comes on standard error, after the others were written.
write_questions() {
    local device
    {
        echo ignore_errors
        for device in $devices; do
            echo "get_param ${device%%/*}.${device#*/}.stats"
        done
        echo help get_param
    } 1>&"$questions_fd" 2>/dev/null
}

# Set $moved to the growth of $answers since $1, and $heard to the number of devices in both. Both are in the same order.
grow_devices() {
    local now grown
    moved='' heard=0
    # shellcheck disable=SC2086 # one word for each device
    set -- $1
    for now in $answers; do
        while [ "${1%=*}" != "${now%=*}" ]; do
            [ $# -gt 0 ] || return 0
            shift
        done
        heard=$((heard + 1))
        if [ "$1" != "$now" ]; then
            subtract "${now#*=}" "${1#*=}"
            moved="$moved ${now%=*}=$grown"
        fi
        shift
    done
}
