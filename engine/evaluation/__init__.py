"""Quality of the rankings of an index, measured with judged queries.

Start with `evaluation`, which measures search modes, and `tuning`, which chooses the weight of dense against
lexical scores. `judgments` reads queries and judgments, `measures` computes the measures of one ranking, and
the confidence intervals of their means.
"""
