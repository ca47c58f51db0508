"""What only the study's leaders can say about a model: for its model card."""

from operation.config import SettingsGroup, setting


class CardSettings(SettingsGroup):
    """Texts of the model card; an empty one is marked as missing there."""

    card_developer: str = setting("", "who developed the model")
    card_contact: str = setting("", "whom to ask, and to tell about problems")
    card_licence: str = setting("", "licence, as an SPDX identifier such as cc-by-4.0")
    card_stage: str = setting("", "stage of the release, such as research")
    card_availability: str = setting("", "where it may be used")
    card_regulatory_approval: str = setting("", "regulatory approval, or that there is none")
    card_summary: str = setting("", "what the model is for, in a few sentences")
    card_intended_use: str = setting("", "intended use, and its place in the work of a clinic")
    card_intended_users: str = setting("", "who should use it")
    card_population: str = setting("", "patients for whom it is meant")
    card_out_of_scope: str = setting("", "where it must not be used")
    card_limitations: str = setting("", "known risks and limitations")
    card_biases: str = setting("", "known biases and ethical considerations")
    card_risk_level: str = setting("", "clinical risk level")
    card_input_source: str = setting("", "where the input data come from")
    card_development_data: str = setting("", "on whose data it was developed: when, where, whom")
    card_bias_mitigation: str = setting("", "what was done against biases")
    card_maintenance: str = setting("", "who maintains it, and how it is watched")
    card_funding: str = setting("", "who paid for it")
    card_stakeholders: str = setting("", "who was consulted")
    card_usefulness: str = setting("", "results on usefulness, beside the test data's below")
    card_fairness: str = setting("", "results on fairness and equity")
    card_safety: str = setting("", "results on safety and reliability")
    card_publications: str = setting("", "publications on it")
    card_consent: str = setting("", "consent or disclosure that patients need")
