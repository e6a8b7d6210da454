"""BatchEngine, slow and obviously right: every step is taken, and time is a whole number of picoseconds."""

import dataclasses
import math

PAGE = 16


@dataclasses.dataclass
class Options:
    coefficients: tuple[float, float, float, float, float]
    speed: float = 1.0
    step_tokens: int = 8192
    max_running: int = 256
    cache_blocks: int = 4096
    block_tokens: int = 16
    min_computed_tokens: int = 16
    prompts_first: bool = False

    def picos(self) -> list[int]:
        """Of a step, a prompt token, a pair of tokens, a sequence, a token of context."""
        units = (1e9, 1e6, 1e3, 1e6, 1e3)
        exact = (value * unit / self.speed for value, unit in zip(self.coefficients, units, strict=True))
        return [math.floor(value + 0.5) for value in exact]


@dataclasses.dataclass(eq=False)
class Block:
    name: int | None
    holders: int = 0
    computed: bool = False


@dataclasses.dataclass(eq=False)
class Request:
    tag: int
    prompt_tokens: int
    output_tokens: int
    names: list[int]
    prompt_blocks: int
    is_held: bool = False
    is_fetched: bool = False
    hit: int = 0
    done: int = 0
    tokens: int = 0
    cancelled: bool = False
    blocks: list[Block] = dataclasses.field(default_factory=list)


class SlowEngine:
    """Blocks that nobody holds stand in `queue`, the next one to be used again first."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.queue: list[Block] = [Block(None) for _ in range(options.cache_blocks)]
        self.named: dict[int, Block] = {}
        self.waiting: list[Request] = []
        self.prefill: list[Request] = []
        self.fetching: list[Request] = []
        self.fetched: list[Request] = []
        self.decode: list[Request] = []
        self.kept: list[Request] = []
        self.chunks: list[tuple[Request, int]] = []
        self.end: int | None = None
        self.pauses = False  # nobody decodes in this step
        self.computed_tokens = 0
        self.events: list[tuple[str, int, int, int]] = []

    # What the tests call

    def submit(self, request: Request, now: int) -> None:
        self.waiting.append(request)
        if self.end is None:
            self.begin(now)

    def set_speed(self, speed: float) -> None:
        self.options = dataclasses.replace(self.options, speed=speed)

    def cancel(self, request: Request) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            request.cancelled = True

    def blocks_came(self, request: Request, now: int) -> None:
        self.fetching.remove(request)
        request.done = max(request.done, request.prompt_tokens - 1)
        self.fetched.append(request)
        if self.end is None:
            self.begin(now)

    def release_held(self, request: Request, now: int) -> None:
        self.kept.remove(request)
        self.release(request, len(request.blocks))
        if self.end is None:
            self.begin(now)

    def advance_to(self, now: int) -> list[tuple[str, int, int, int]]:
        while self.end is not None and self.end <= now:
            self.finish_step(self.end)
        events, self.events = self.events, []
        return events

    def wipe(self) -> None:
        for block in self.queue:
            self.forget(block)

    def match(self, names: list[int]) -> int:
        matched = 0
        while matched < len(names) and names[matched] in self.named and self.named[names[matched]].computed:
            matched += 1
        return matched

    def held(self) -> int:
        return self.options.cache_blocks - len(self.queue)

    # Blocks

    def forget(self, block: Block) -> None:
        if block.name is not None:
            del self.named[block.name]
        block.name, block.computed = None, False

    def admit(self, request: Request) -> bool:
        options = self.options
        total = -(-(request.prompt_tokens + request.output_tokens) // options.block_tokens)
        names: list[int | None] = [*request.names[: options.cache_blocks]]
        names += [None] * (min(max(total, len(request.names)), options.cache_blocks) - len(names))
        known = [self.named.get(name) if name is not None else None for name in names]
        if sum(block is None or block.holders == 0 for block in known) > len(self.queue):
            return False
        hit = self.match(request.names[: min(request.prompt_blocks, options.cache_blocks)])
        for block in known:
            if block is not None:
                if block.holders == 0:
                    self.queue = [other for other in self.queue if other is not block]
                block.holders += 1
        for name, block in zip(names, known, strict=True):
            if block is None:
                block = self.queue.pop(0)
                self.forget(block)
                block.holders = 1
                if name is not None:
                    block.name = name
                    self.named[name] = block
            request.blocks.append(block)
        page = min(PAGE, options.block_tokens)
        most = max(0, request.prompt_tokens - max(1, options.min_computed_tokens)) // page * page
        request.hit = request.done = min(hit * options.block_tokens, most)
        return True

    def compute(self, request: Request, blocks: int) -> None:
        for block in request.blocks[:blocks]:
            if block.name is not None:
                block.computed = True

    def release(self, request: Request, computed: int) -> None:
        for i, block in reversed(list(enumerate(request.blocks))):
            block.holders -= 1
            if block.holders > 0:
                continue
            if block.computed or (block.name is None and i < computed):
                self.queue.append(block)
            else:
                self.forget(block)
                self.queue.insert(0, block)

    # Steps

    def begin(self, now: int) -> None:
        options = self.options
        left = options.step_tokens - (0 if options.prompts_first else len(self.decode))
        self.chunks = []

        def take(request: Request) -> None:
            nonlocal left
            tokens = min(left, request.prompt_tokens - request.done)
            left -= tokens
            self.chunks.append((request, tokens))

        for request in self.prefill:
            if left > 0:
                take(request)

        def has_room() -> bool:
            return left > 0 and len(self.prefill) + len(self.decode) < options.max_running

        while self.fetched and has_room():
            self.prefill.append(self.fetched.pop(0))
            take(self.prefill[-1])
        while self.waiting and has_room():
            if not self.admit(self.waiting[0]):
                break
            request = self.waiting.pop(0)
            if request.is_fetched:
                self.fetching.append(request)
                self.events.append(("fetch", request.tag, request.hit, now))
                continue
            self.prefill.append(request)
            take(request)
        if not self.chunks and not self.decode:
            self.end = None
            return
        step, prefill, pair, sequence, context = options.picos()
        self.pauses = options.prompts_first and bool(self.chunks)
        decode = [] if self.pauses else self.decode
        cost = step + sequence * len(decode)
        cost += context * sum(request.prompt_tokens + request.tokens for request in decode)
        for request, tokens in self.chunks:
            cost += prefill * tokens + pair * tokens * (2 * request.done + tokens) // 2
        self.end = now + cost

    def finish_step(self, now: int) -> None:
        block_tokens = self.options.block_tokens
        for request in [] if self.pauses else list(self.decode):
            request.tokens += 1
        over = [request for request in self.decode if request.tokens == request.output_tokens]
        for request in sorted(over, key=lambda request: request.tag):
            if not request.cancelled:
                self.events.append(("finished", request.tag, request.hit, now))
            self.decode.remove(request)
            self.compute(request, len(request.blocks))
            self.release(request, len(request.blocks))
        for request, tokens in self.chunks:
            request.done += tokens
            self.computed_tokens += tokens
            whole = request.done >= request.prompt_tokens
            self.compute(
                request,
                min(request.prompt_blocks, len(request.blocks))
                if whole
                else min(request.prompt_blocks, request.done // block_tokens),
            )
            if not whole or request.cancelled:
                continue
            self.prefill.remove(request)
            request.tokens = 1
            self.events.append(("first_token", request.tag, request.hit, now))
            if request.output_tokens <= 1:
                self.events.append(("finished", request.tag, request.hit, now))
                self.compute(request, len(request.blocks))
                if request.is_held:
                    self.kept.append(request)
                else:
                    self.release(request, len(request.blocks))
            else:
                self.decode.append(request)
        leaving = [request for request in self.prefill + self.decode if request.cancelled]
        for request in sorted(leaving, key=lambda request: request.tag):
            (self.prefill if request in self.prefill else self.decode).remove(request)
            # Of the last token that was made nothing is in memory yet.
            filled = request.done + max(0, request.tokens - 1)
            blocks = min(len(request.blocks), filled // block_tokens)
            if filled == request.prompt_tokens + request.output_tokens:
                blocks = len(request.blocks)
            self.compute(request, blocks)
            self.release(request, blocks)
        self.begin(now)
