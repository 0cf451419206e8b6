"""Quality of the rankings of an index, measured with judged queries.

Start with `evaluation`, which measures search modes and the confidence intervals of means, and `tuning`, which
chooses the weight of dense against lexical scores. `judgments` reads queries and judgments.
"""
