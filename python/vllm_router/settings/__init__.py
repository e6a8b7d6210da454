"""Settings: every flag of the command, key of its YAML file and option of `Router`, each written once.

`vllm_router.router_args` is the public name of this package. What there is to choose from (policies,
connectors, routes of the response cache) the C++ extension says. Nothing here needs a package beyond Python's
own, except PyYAML where YAML is read or written. A module may import those below it:

    args              RouterArgs: from the command line, YAML and Python to what the core gets
    checks            settings together: what fits, what has no effect, the options of `Router`
    environment       settings that the environment may set
    admission         the file of --admission-config, as lines for the core
    programs          agents' programs, from flags and that file, as a line for the core
    yaml              a YAML file of settings, read with bounds
    names             every name of a setting: FLAGS, other spellings, former and unknown names
    table             the settings that do something
    reference_flags   the flags of vllm-project/router, and those of them that do nothing here
    foreign_flags     flags of other routers, and what does their work here
    connectors        the names of connectors
    clients           which header names tenants, and classes of models' aliases
    response_cache    routes, members, headers, prefixes and durations in settings of the response cache
    urls              URLs, origins and paths in settings
    kubernetes        label selectors, and names and ports of objects, in settings
    command_line      flags on an argparse parser
    flag              Flag: one setting
    policies          the names of policies, and which settings each reads
    kinds             Kind: what values look like
    host              CPUs and memory that the process may use
"""
