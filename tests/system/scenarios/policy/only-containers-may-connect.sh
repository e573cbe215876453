# As the whole policy says it, which knows more domains than could be tried: who connects to the service
# are containers, and domains that nothing is denied to. With the library of sesearch.
python3 - <<'QUERIES'
import os

import setools

policy = setools.SELinuxPolicy(os.environ["POLICY"])


def sources(target, tclass, permission, **criteria):
    """Who is granted it, as the policy names them: types and attributes."""
    query = setools.TERuleQuery(
        policy, ruletype=["allow"], target=target, tclass=[tclass], perms=[permission], **criteria
    )
    return sorted({str(rule.source) for rule in query.results()})


def members(names):
    """All types that these are."""
    types = set()
    for name in names:
        try:
            types.update(str(one) for one in policy.lookup_typeattr(name).expand())
        except setools.exception.InvalidType:
            types.add(name)
    return types


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"failed: {what}: found {found}, expected {expected}")


connect = ("portsd_t", "unix_stream_socket", "connectto")
equal("who may connect", sources(*connect), ["container_domain", "unconfined_domain_type"])
for types, path in (("portsd_var_run_t", ["container_domain"]), ("portsd_admin_var_run_t", [])):
    equal(types, sources(types, "sock_file", "write", target_indirect=False), path)
equal("database", sources("portsd_var_lib_t", "file", "read", target_indirect=False), ["portsd_t"])
equal("who becomes the service", sources("portsd_t", "process", "transition"), ["init_t", "initrc_t"])

# what is granted to others on our types, by name
rules = setools.TERuleQuery(
    policy, ruletype=["allow"], target="portsd_.*", target_regex=True, target_indirect=False
).results()
equal(
    "others' rules",
    {str(rule) for rule in rules if not str(rule.source).startswith("portsd_")},
    {
        "allow container_domain portsd_var_run_t:sock_file { append getattr open write };",
        "allow container_domain portsd_t:unix_stream_socket connectto;",
        "allow init_t portsd_t:process transition;",
        "allow initrc_t portsd_t:process transition;",
    },
)

# both halves are needed: the file, and its listener
callers = members(sources(*connect))
unconfined = members(["unconfined_domain_type"])
administrators = callers & members(sources("portsd_admin_var_run_t", "sock_file", "write"))
equal("administrators that are confined", administrators - unconfined, set())
for domain in ("httpd_t", "user_t", "sshd_t"):
    equal(f"{domain} is a caller", domain in callers, False)
containers = members(["container_domain"]) - unconfined
for target, tclass, permissions in (
    ("portsd_var_lib_t", "file", "read write append unlink rename create"),
    ("portsd_var_lib_t", "dir", "write add_name remove_name"),
    ("portsd_var_run_t", "sock_file", "unlink rename create setattr relabelfrom"),
    ("portsd_var_run_t", "dir", "write add_name remove_name rmdir"),
):
    for permission in permissions.split():
        found = containers & members(sources(target, tclass, permission))
        equal(f"containers that may {permission} a {tclass} of {target}", found, set())
equal("permissive", [str(one) for one in policy.types() if one.ispermissive and "portsd" in str(one)], [])
QUERIES
