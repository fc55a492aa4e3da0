"""The simulator's exception."""


class SimulatorError(RuntimeError):
    """A kernel did something that it must not do, or cannot be built.

    The message names what is known of kernel, block, thread, line and argument.
    """
