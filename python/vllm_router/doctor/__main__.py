"""`python -m vllm_router.doctor`."""

import sys

from vllm_router.doctor import main

sys.exit(main())
