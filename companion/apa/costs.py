"""What `companion.count` adds for APA and AGLU: activation functions are free, however they are computed."""

from companion.apa.op import aglu, apa
from companion.counting import free

free(aglu, apa)
