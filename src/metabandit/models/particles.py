from metabandit.models.linear_belief import LinearBelief
ParticleBelief = LinearBelief
