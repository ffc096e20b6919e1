# Installs the Debian package `$1`, runs its server as the unit does, removes and purges it. Each
# step fails if the package leaves another state than it promises.

configuration=/etc/leasehold/leasehold.toml
data=/var/lib/leasehold
scratch=$(mktemp --directory)
out=$scratch/out
unit=/usr/lib/systemd/system/leasehold.service

# The process id of the running server, which must not outlive this script.
server=
trap '[ -z "$server" ] || kill "$server"' EXIT

fail() {
    echo "failed: $*" >&2
    exit 1
}

# Compares the owner, group and mode of `$1` with `$2`.
has_rights() {
    found=$(stat --format '%U:%G %a' "$1")
    [ "$found" = "$2" ] || fail "$1 has the rights '$found', not '$2'"
}

as_server() {
    setpriv --reuid=leasehold --regid=leasehold --init-groups "$@"
}

# Runs the unit's command as the unit's user, waits for the banner, makes a save, and stops the
# server.
run_server() {
    command=$(sed --quiet 's/^ExecStart=//p' "$unit")
    rm -f "$out"
    mkfifo "$out"
    # The command has no quoted words, so the shell divides it as systemd does. A function would run
    # in a shell of its own, which the signal below would end in place of the server.
    # shellcheck disable=SC2086
    setpriv --reuid=leasehold --regid=leasehold --init-groups sh -c 'umask 077; exec "$@"' start $command >"$out" 2>&1 &
    server=$!
    {
        store=
        while read -r word rest; do
            case $word in
            store) store=${rest%% *} ;;
            metrics) break ;;
            error:) fail "$rest" ;;
            esac
        done
        [ -n "$store" ] || fail 'the server has not started'
        leasehold begin --cell 1 --create "USERNAMES:$1" --subject USER:7 --source USERS:7 >"$scratch/begun"
        lease=$(sed --quiet 's/^begun lease \([^ ]*\) .*/\1/p' "$scratch/begun")
        leasehold commit --cell 1 "$lease"
        kill -TERM "$server"
        wait "$server" || fail 'the server has not stopped well'
        server=
    } <"$out"
}

# An earlier run may have failed halfway.
dpkg --purge leasehold
rm -rf "$data" /etc/leasehold
if getent passwd leasehold; then
    deluser leasehold
fi

apt-get install --yes --no-install-recommends "$1"
getent passwd leasehold | grep --quiet ":$data:/usr/sbin/nologin$" || fail 'the user is not made'
has_rights "$data" 'leasehold:leasehold 700'
has_rights "$configuration" 'root:leasehold 640'
has_rights /usr/bin/leasehold 'root:root 755'
dpkg --verify leasehold
[ -z "$(ls -A "$data")" ] || fail 'a store is made without a request'
[ ! -e /etc/systemd/system/multi-user.target.wants/leasehold.service ] || fail 'the unit is enabled'
as_server leasehold doctor --config "$configuration" --data "$data" || echo 'the doctor misses the store, as it must'

as_server leasehold init --config "$configuration" --data "$data"
run_server alice
first=$store

# An administrator's configuration outlives an upgrade, and so do its rights.
echo '# mine' >>"$configuration"
chmod 600 "$configuration"
chown leasehold: "$configuration"
dpkg --install "$1"
grep --quiet '^# mine$' "$configuration" || fail 'an upgrade replaced the configuration'
has_rights "$configuration" 'leasehold:leasehold 600'

apt-get remove --yes leasehold
[ ! -e /usr/bin/leasehold ] || fail 'the program is left'
[ -e "$configuration" ] || fail 'the configuration is removed without a purge'
apt-get install --yes --no-install-recommends "$1"
run_server bob
[ "$store" = "$first" ] || fail "the store changed from '$first' to '$store'"

apt-get purge --yes leasehold 2>"$scratch/purged"
grep --quiet 'the store in /var/lib/leasehold is kept' "$scratch/purged" || fail 'the purge does not tell of the store'
[ ! -e /etc/leasehold ] || fail 'a purge leaves the configuration'
[ -n "$(ls -A "$data")" ] || fail 'a purge removed the store'

# Without a store, a purge leaves nothing but the user.
rm -r "${data:?}"
dpkg --install "$1"
dpkg --purge leasehold
[ ! -e "$data" ] || fail 'a purge leaves an empty directory'
left=$(find / -xdev -name '*leasehold*' -not -path '/proc/*' -not -path '/tmp/*' -not -path '/packages.d/*')
[ -z "$left" ] || fail "a purge leaves $left"
