# What the scripts beside this one share; they read it, nobody runs it. Needs rabbitmqctl, or a
# command of that kind in RABBITMQCTL.
here=$(dirname "$0")
control=${RABBITMQCTL:-rabbitmqctl}
new_password=no
[ "${1-}" != --new-password ] || { new_password=yes; shift; }

fail() {
    echo "$(basename "$0"): $2" >&2
    exit "$1"
}

# Set `vhost`, which must be there, as it is and as JSON and sed want it.
use_vhost() {
    vhost=$1
    case $vhost in
        '' | *[!A-Za-z0-9/._-]*)
            fail 2 "the vhost is '$vhost': should be letters, digits, dots, dashes, slashes or _" ;;
    esac
    known=$($control -q --no-table-headers list_vhosts name) ||
        fail 4 "the broker does not answer: $control has to work here"
    printf '%s\n' "$known" | grep -qxF -e "$vhost" ||
        fail 2 "the vhost is '$vhost': there is none of that name; $control add_vhost makes it"
}

# Declare exchanges, queues and bindings as a conductor does; again is harmless.
declare_topology() {
    sed "s|\"vhost\": \"/\"|\"vhost\": \"$vhost\"|" "$here/definitions.json" | import
}

import() {
    $control -q import_definitions >/dev/null ||
        fail 3 "the broker holds something of these names with other properties: see above"
}

# Give an account its rights in the vhost: configure, write, read. It is made where it is missing;
# its name and password are printed then, and later with --new-password, and never again.
give_rights() {
    account=$1
    password=
    if ! $control -q --no-table-headers list_users | cut -f1 | grep -qxF -e "$account"; then
        password=$(random_password)
        # Standard input keeps the password out of the list of processes.
        printf '%s\n' "$password" | $control -q add_user "$account" >/dev/null
    elif [ $new_password = yes ]; then
        password=$(random_password)
        printf '%s\n' "$password" | $control -q change_password "$account" >/dev/null
    fi
    $control -q set_permissions -p "$vhost" "$account" "$2" "$3" "$4"
    if [ -n "$password" ]; then
        echo "$account $password"
    else
        echo "$account"
        echo "$(basename "$0"): $account keeps its password; --new-password makes another" >&2
    fi
}

random_password() {
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

# Fail unless a service's name can be part of an account's, and of what its queues are called.
check_name() {
    case $1 in
        *[!a-z0-9-]*) fail 2 "the name is '$1': should be small letters, digits and dashes" ;;
    esac
}
