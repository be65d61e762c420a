"""Every figure of the paper that is reproduced, in the paper's order."""

from testbed.paper.figure import PaperFigure
from testbed.paper.links import LINKS

FIGURES: tuple[PaperFigure, ...] = LINKS
