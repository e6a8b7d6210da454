"""RouterArgs: every flag of the command, key of its YAML file and option of `Router`, defined once.

    RouterArgs.add_cli_args(parser)          the flags, in groups
    RouterArgs.from_cli_args(namespace)      what the command line said
    RouterArgs.from_yaml(text)               the same names in a file
    RouterArgs(policy="round_robin", …)      the same names in Python
    check_policy_options({…})                those of them that `Router(**options)` takes
    FLAGS["virtual_nodes"]                   one of them: default, range, help, spellings

This module is the public name, as in vllm-project/router, whose names and defaults these are; the package
`vllm_router.settings` has the rest.
"""

from vllm_router.settings.args import RouterArgs
from vllm_router.settings.checks import check_policy_options
from vllm_router.settings.names import FLAGS, POLICY_OPTIONS
from vllm_router.settings.policies import BUILT_POLICIES, DEFAULT_POLICY

__all__ = [
    "BUILT_POLICIES",
    "DEFAULT_POLICY",
    "FLAGS",
    "POLICY_OPTIONS",
    "RouterArgs",
    "check_policy_options",
]
