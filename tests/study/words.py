"""What is said of wrong answers to several exercises."""

NOT_EXACT = "It is near and not exact: was something rounded or approximated?"
DTYPE = "Its dtype is"
CHANGED = "Two arguments have changed places:"
FOREIGN = "The formula has the symbol"
