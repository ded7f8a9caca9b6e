"""What this host compiles, in the background: the stream asks for it, the compiler says when it is ready, and it is
void with its epoch.

Neighbours: `executor` brings both; `host_state` has what is said again after a new seat.
"""

from ..model import Hosts, Illegal, spans
from ..protocol import MOST_ABOUT, Blame, Cause, CodeReady, CompileCode, Compiled, CompileStep, ForgetPlan, ToController
from .host_state import HostState, own_blame, repeat
from .plans import HostPlan


def code_cause(plan: int, code: int) -> Cause:
    return ("code", plan << 20 | code)


class HostCodes:
    def __init__(self, state: HostState, hosts: Hosts) -> None:
        self._state, self._hosts = state, hosts

    def compile(self, step: CompileStep, plan: HostPlan) -> None:
        state = self._state
        for number in step.codes:
            if plan.compiles(number):
                key = (step.plan, number)
                state.codes[key] = None
                state.codes_asked[key] = state.codes_asked.get(key, 0) + 1
                state.out.append(CompileCode(step.plan, number, state.order, self._speaks(plan, number)))

    def _speaks(self, plan: HostPlan, number: int) -> bool:
        """Whether this host is the one that says what is known of the code, for a client that wants to know."""
        device = plan.first_device(number)
        return device >= 0 and spans.contains(self._state.members, self._hosts.host_of(device))

    def ready(self, event: CodeReady) -> None:
        state, key = self._state, (event.plan, event.code)
        plan = state.plans.get(event.plan)
        asked = state.codes_asked.pop(key, 0)
        if not asked:
            raise Illegal(f"code {event.code} of plan {event.plan} is ready, and nobody asked")
        if asked > 1:  # asked again meanwhile, for a new epoch: the last answer is the one that counts
            state.codes_asked[key] = asked - 1
            return
        blame = own_blame(state, event.blame, plan.plan.program if plan is not None else "")
        about = event.about if plan is not None and self._speaks(plan, event.code) else b""
        if len(about) > MOST_ABOUT:
            text = f"there are {len(about)} bytes to say about the compiled code, of at most {MOST_ABOUT}"
            blame, about = blame or own_blame(state, Blame("code", text), plan.plan.program), b""  # type: ignore[union-attr]
        report = state.codes[key] = Compiled(event.plan, event.code, state.members, blame, about)
        state.out.append(ToController(report, (code_cause(event.plan, event.code),)))
        if plan is None:
            del state.codes[key]  # the plan was forgotten meanwhile

    def forget(self, plan: int) -> None:
        """What is being compiled for it will be answered, and is forgotten then."""
        codes = self._state.codes
        self._state.out.append(ForgetPlan(plan, self._state.order))
        for key in [key for key, said in codes.items() if key[0] == plan and said is not None]:
            del codes[key]

    def void(self) -> None:
        """With its epoch; what is under way is for the next."""
        self._state.codes = {key: said for key, said in self._state.codes.items() if said is None}

    def again(self) -> None:
        for said in self._state.codes.values():
            if said is not None:
                repeat(self._state, said)
